"""A host of Deep Agents agents, each conversation with a Caisson sandbox; README.md tells how."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from caisson import Client
from caisson.deepagents import CaissonSandbox, sandbox_spec


class Host:
    """Conversations by id. The ids come from the host's own users, never from a model."""

    def __init__(self, model: BaseChatModel) -> None:
        self._model = model
        self._client = Client()
        self._backends: dict[str, CaissonSandbox] = {}
        self._agents: dict[str, Any] = {}
        self._history = InMemorySaver()

    async def ask(self, conversation: str, text: str) -> None:
        """Has the agent answer, and prints what it does."""
        if conversation not in self._agents:
            # Asks the server whether the specification is allowed. The sandbox itself is made
            # when the agent first needs it, so a conversation that only talks costs none.
            backend = await CaissonSandbox.acreate(
                sandbox_spec(execute_timeout=60, resources={"memory_bytes": 1 << 30}),
                client=self._client,
                thread_id=conversation,
                agent_id="helper",
            )
            self._backends[conversation] = backend
            self._agents[conversation] = create_deep_agent(
                model=self._model,
                backend=backend,
                system_prompt="Your files are in /workspace. Be brief.",
                checkpointer=self._history,
            )
        config = {"configurable": {"thread_id": conversation}}
        messages = {"messages": [("user", text)]}
        steps = self._agents[conversation].astream(messages, config, stream_mode="updates")
        async for step in steps:
            for update in step.values():
                for message in (update or {}).get("messages", []):
                    show(message)

    async def delete(self, conversation: str) -> bool:
        """The delete hook: a conversation goes with its sandbox. False means that the end is not
        confirmed: the conversation stays, so that the host can delete it again."""
        backend = self._backends.get(conversation)
        if backend is not None and not await backend.aclose():
            return False
        self._backends.pop(conversation, None)
        self._agents.pop(conversation, None)
        await self._history.adelete_thread(conversation)
        return True


def show(message: BaseMessage) -> None:
    if isinstance(message, AIMessage):
        if message.text:
            print(message.text)
        for call in message.tool_calls:
            print(f"-> {call['name']} {json.dumps(call['args'])}")
    elif isinstance(message, ToolMessage):
        for line in filter(None, str(message.content).splitlines()):
            print(f"   {line}")


class Script(BaseChatModel):
    """Plays a model that does one task, for trying this without one."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Any, **_: Any) -> BaseChatModel:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        done = [message for message in messages if isinstance(message, ToolMessage)]
        words = {"file_path": "/workspace/words.txt", "content": "one\ntwo\nthree\n"}
        count = {"command": "grep -c e words.txt"}
        if not done:
            answer = AIMessage("", tool_calls=[{"id": "1", "name": "write_file", "args": words}])
        elif len(done) == 1:
            answer = AIMessage("", tool_calls=[{"id": "2", "name": "execute", "args": count}])
        else:
            answer = AIMessage("Two of the three words have an e.")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def make_model() -> BaseChatModel:
    if not os.environ.get("OPENAI_API_KEY"):
        print("No OPENAI_API_KEY: a script plays the model.")
        return Script()
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"))


async def main() -> int:
    host = Host(make_model())
    gone = False
    try:
        await host.ask("demo", " ".join(sys.argv[1:]) or "How many words have an e?")
    finally:
        gone = await host.delete("demo")
        print(f"[conversation demo is deleted; its sandbox is gone: {gone}]")
    return 0 if gone else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
