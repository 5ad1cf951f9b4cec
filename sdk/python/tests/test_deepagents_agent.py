"""A real agent of Deep Agents does a task in a sandbox; a mock of the model provider that others
wrote speaks the model's protocol (tests/providers)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain_openai import ChatOpenAI

from caisson import Client
from caisson.deepagents import CaissonSandbox
from real_server import Server
from test_sandbox import REPOSITORY

KEY = "test-key"


@pytest.fixture(scope="module")
def model() -> Iterator[ChatOpenAI]:
    packages = REPOSITORY / "build" / "providers" / "node_modules"
    if not packages.exists():
        pytest.skip("the mock of the model providers is missing: run tests/providers/install")
    process = subprocess.Popen(
        [
            "node",
            REPOSITORY / "tests" / "providers" / "start.cjs",
            Path(__file__).parent / "model.json",
        ],
        env={**os.environ, "NODE_PATH": str(packages), "MOCK_KEY": KEY},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url, "the mock of the model providers did not start"
        yield ChatOpenAI(base_url=f"{url}/v1", api_key=KEY, model="mock", max_retries=0)
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def backend(server: Server) -> Iterator[CaissonSandbox]:
    with Client(server.url) as client:
        backend = CaissonSandbox(client=client, thread_id="t")
        yield backend
        assert backend.close() is True


def check(state: dict[str, Any], backend: CaissonSandbox) -> None:
    messages = state["messages"]
    assert messages[-1].content == "There are four words."
    results = {message.tool_call_id: message for message in messages if message.type == "tool"}
    assert all(message.status == "success" for message in results.values()), results
    assert results["call_execute"].content.startswith("4\n[stderr] careful")
    assert results["call_execute"].artifact["exit_code"] == 3
    assert "/workspace/notes/words.txt" in results["call_glob"].content
    assert "/workspace/notes/words.txt" in results["call_ls"].content
    assert "three needle" in results["call_grep"].content
    assert backend.download_files(["/workspace/notes/words.txt"])[0].content == (
        b"one two\nfour words\n"
    )


def test_an_agent_does_a_task(model: ChatOpenAI, backend: CaissonSandbox) -> None:
    agent = create_deep_agent(model=model, backend=backend)
    state = agent.invoke({"messages": [("user", "Please count the words")]})
    check(state, backend)


async def test_an_agent_does_a_task_asynchronously(
    model: ChatOpenAI, backend: CaissonSandbox
) -> None:
    agent = create_deep_agent(model=model, backend=backend)
    state = await agent.ainvoke({"messages": [("user", "Please count the words")]})
    check(state, backend)


def test_large_output_is_put_aside_in_the_sandbox(
    model: ChatOpenAI, backend: CaissonSandbox
) -> None:
    """Deep Agents moves what is too much for a model into a file under /large_tool_results."""
    agent = create_deep_agent(model=model, backend=backend)
    state = agent.invoke({"messages": [("user", "Please print a lot")]})
    result = next(message for message in state["messages"] if message.type == "tool")
    assert len(result.content) < 10_000 and "/large_tool_results/" in result.content
    assert backend.execute("head -n 2 /large_tool_results/*").output == "1\n2\n"
