"""An agent that thinks, calls a tool, and thinks again; killed in between, it goes on."""

import tempfile
from dataclasses import dataclass, field

import holdfast
from holdfast import flow, step, turns


@dataclass
class Message:
    role: str
    text: str
    tool: str | None = None


@dataclass
class Chat:
    messages: list[Message] = field(default_factory=list)


interrupted = False


@step
def think(messages: list[Message]) -> Message:
    """Stands for a call of a model."""
    print(f"  thinking about {len(messages)} messages")
    tools_used = sum(m.role == "tool" for m in messages)
    if tools_used < 2:
        return Message("assistant", "let me look", tool=f"search-{tools_used + 1}")
    return Message("assistant", "Refunds take 14 days.")


@step
def call_tool(name: str) -> Message:
    global interrupted
    if name == "search-2" and not interrupted:
        interrupted = True
        raise KeyboardInterrupt
    print(f"  calling {name}")
    return Message("tool", f"{name}: 14 days")


@flow
def agent(task: str) -> str:
    for chat in turns(Chat([Message("user", task)]), max_turns=20):
        reply = think(chat.messages)
        chat.messages.append(reply)
        if reply.tool is None:
            return reply.text
        chat.messages.append(call_tool(reply.tool))
    raise AssertionError  # at the limit, turns raises TurnLimitReached


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        holdfast.open(f"sqlite:///{folder}/runs.db"),
    ):
        task = "How long do refunds take?"
        try:
            print("first try")
            agent.run("chat-1", task)
        except KeyboardInterrupt:
            print("stopped in the second turn")
        print("run again")
        print(agent.run("chat-1", task))


if __name__ == "__main__":
    main()
