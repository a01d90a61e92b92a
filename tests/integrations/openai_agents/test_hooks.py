"""A release of the SDK whose private functions are others is refused, before one of them is replaced."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.integrations.environments import Environment

HELD = [
    "agents.run_internal.run_loop:get_model",
    "agents.run_internal.tool_execution:_invoke_function_tool_with_metadata",
    "agents.tool:maybe_invoke_function_tool_failure_error_function",
    "agents.models.chatcmpl_stream_handler:ChatCmplStreamHandler.handle_stream",
    "agents.models._response_terminal:response_terminal_failure_error",
    "agents.models._response_terminal:response_error_event_failure_error",
]

# In a process of its own: here the functions are replaced already.
PROGRAM = """
import importlib, sys
from agents.run import get_default_agent_runner

module, _, path = sys.argv[1].partition(":")
how = sys.argv[2]
held = importlib.import_module(module)
*inside, name = path.split(".")
for part in inside:
    held = getattr(held, part)
if how == "gone":
    delattr(held, name)
elif how == "moved":
    sys.modules[module] = None
else:
    setattr(held, name, classmethod(lambda cls, other: None) if inside else lambda other: None)

from agents.run_internal import run_loop, tool_execution
before = run_loop.__dict__.get("get_model"), dict(vars(tool_execution)), get_default_agent_runner()

from holdfast.integrations.openai_agents import install_durable_runner
try:
    install_durable_runner()
except ImportError as error:
    print(error)
after = run_loop.__dict__.get("get_model"), dict(vars(tool_execution)), get_default_agent_runner()
assert after == before
"""


def refused(place: str, how: str) -> str:
    command = [sys.executable, "-c", PROGRAM, place, how]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("place", HELD)
def test_a_function_with_another_signature(place):
    said = refused(place, "other")
    assert f"openai-agents {version('openai-agents')} has no {place.partition(':')[0]}." in said
    assert place.rpartition(":")[2].rpartition(".")[2] in said
    assert "tested with openai-agents from 0.20 on, last with 0.24: install one of those" in said


@pytest.mark.parametrize("how", ["gone", "moved"])
def test_a_function_that_is_no_longer_there(how):
    place = "agents.models._response_terminal:response_terminal_failure_error"
    said = refused(place, how)
    assert "has no agents.models._response_terminal.response_terminal_failure_error(" in said


def test_the_lowest_release_that_is_named_is_the_one_that_is_tested():
    lowest = Environment("openai_agents", "lowest").versions()["openai-agents"]
    assert lowest.rpartition(".")[0] == "0.20"
