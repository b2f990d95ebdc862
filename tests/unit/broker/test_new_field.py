"""A field of tasks is added in five files: in a copy of the package, with submit, list and get by the real client."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[3]
# File, text before which (it is there once) the lines are put, and the lines.
_DIFF = [
    ("broker/machine/commands.py", "\n\nclass SubmitTasks(", '    label: str = ""\n'),
    ("broker/machine/rows.py", "\n\nclass StateRow(", "    label: str\n"),
    ("broker/machine/views.py", "\n\nclass TaskPageView(", '    label: str = ""\n'),
    ("broker/api/task_bodies.py", "\n\nclass SubmitBody(", '    label: Name = ""\n'),
    ("broker/client/task.py", "\n\nclass NewTask(", "    label: str\n"),
    ("broker/client/task.py", "\n\n_PLAIN = ", '    label: str = ""\n'),
    ("broker/client/task.py", "\n    @property\n    def has_ended(", '    label: str = ""\n'),
]
# Beside them, if workers need the field.
_WORKERS_DIFF = [
    ("broker/machine/worker_messages.py", "\n\nclass WorkerWelcome(", '    label: str = ""\n'),
    ("broker/wire/worker.proto", "}\n\nmessage Welcome {", "  string label = 15;\n"),
]
_WORKERS_SCRIPT = """
from broker.machine.commands import TaskSpec
from broker.machine.worker_messages import FromBroker
from broker.wire.worker_codec import decode_from_broker, encode_from_broker
from tests.unit.broker.machine.driven_broker import DrivenBroker

driven = DrivenBroker()
driven.appear()
(task_id,) = driven.submit(TaskSpec("mail", label="blue"))
driven.fire()
(assignment_id,) = driven.assignments(task_id)
run = driven.machine.assigned_run(task_id, assignment_id, driven.now_ms)
(told,) = decode_from_broker(encode_from_broker(FromBroker(1, assignments=[run]))).assignments
assert told == run and told.label == "blue", told
print("added")
"""
_SCRIPT = '''
import asyncio
import broker
from broker.client import AsyncBrokerClient, NewTask
from broker.machine.tables import BROKER_DESCRIPTION
from tests.unit.broker.api.stand import StandIn, serving
from tests.unit.broker.machine.driven_broker import DrivenBroker

assert BROKER_DESCRIPTION.tables[0].row[-1].name == "label", broker.__file__


class Machine(StandIn):
    """The real machine behind the real HTTP server."""

    def __init__(self):
        super().__init__()
        self.driven = DrivenBroker()

    async def execute(self, command, *, timeout_s=30):
        return self.driven.run(command)

    async def query(self, query, **rest):
        return self.driven.ask(query), self.driven.revision


async def run():
    async with serving(Machine()) as (server, machine):
        async with await AsyncBrokerClient.connect([f"http://{server.address}"]) as client:
            task_id = await client.submit("mail", b"hello", label="blue")
            await client.submit_many([NewTask("mail", label="red"), NewTask("mail")])
            page = await client.page()
            assert [task.label for task in page.tasks] == ["blue", "red", ""], page
            assert (await client.get(task_id)).label == "blue"
            machine.driven.reboot()
            assert (await client.get(task_id)).label == "blue"
            machine.driven.check()
    print("added")


asyncio.run(run())
'''


def _added(folder: Path, diff: list[tuple[str, str, str]]) -> None:
    """Make a copy of the package with these lines."""
    shutil.copytree(_ROOT / "broker", folder / "broker", ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, lines in diff:
        text = (folder / name).read_text()
        assert text.count(before) == 1, (name, before)
        (folder / name).write_text(text.replace(before, lines + before))


def _runs(tmp_path: Path, text: str) -> None:
    script = tmp_path / "added.py"
    script.write_text(text)
    search = os.pathsep.join([str(tmp_path), str(_ROOT)])
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "added"), done.stderr


def test_a_field_of_tasks_is_added_in_at_most_five_files(tmp_path: Path) -> None:
    _added(tmp_path, _DIFF)
    assert len({name for name, _, _ in _DIFF}) <= 5
    _runs(tmp_path, _SCRIPT)


def test_workers_are_told_a_field_that_their_message_and_its_wire_have_too(tmp_path: Path) -> None:
    _added(tmp_path, [*_DIFF, *_WORKERS_DIFF])
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", "--python_out=.", "broker/wire/worker.proto"]
    subprocess.run(protoc, cwd=tmp_path, check=True, timeout=120)
    _runs(tmp_path, _WORKERS_SCRIPT)
