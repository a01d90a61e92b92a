"""Agents of Pydantic AI as durable runs: `Agent(…, capabilities=[Durable()])`.

Inside a run every request to the model is a step named `model`, and every tool call a step that is
named by the tool and known by the id of the call: `lookup_order:call_17`. A tool whose function is a
step or an effect already keeps its own policy. Outside a run nothing changes.

It stands on `pydantic_ai.durable_exec`, the interface that Pydantic AI has for engines like this one.
"""

from __future__ import annotations

from holdfast.integrations._needs import needs

needs("pydantic-ai-slim", extra="pydantic-ai")

from holdfast.integrations.pydantic_ai import _upstream_names  # noqa: E402 - said first what to install

_upstream_names.check()

from holdfast.integrations.pydantic_ai._durable import Durable  # noqa: E402 - and what it must have

__all__ = ["Durable"]
