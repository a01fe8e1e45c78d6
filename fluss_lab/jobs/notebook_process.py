"""The process that runs one notebook by papermill: ``python -m fluss_lab.jobs.notebook_process``.

Its task arrives on standard input, as one line of JSON; values never stand on its command line. When standard input ends,
whoever started it is gone: then it ends every process of the run, itself last. What cells print goes to standard output,
what became of cells and run to the descriptor that the task names, as lines of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from fluss_lab.errors import InvalidRequestError, StorageError
from fluss_lab.files import write_atomic
from fluss_lab.jobs.output_limit import OutputLimit, join_streams, without_emptied
from fluss_lab.jobs.run_processes import kill_run
from fluss_lab.jobs.run_record import SUMMARY_LENGTH_MAX, SUMMARY_MIME
from fluss_lab.jobs.run_secrets import Redactor
from fluss_lab.model.config.config_chain import RUN_VARIABLE

#: Longest start of a kernel: a cold disk and a busy machine.
KERNEL_START_TIMEOUT_S: Final = 120
#: The path of a Unix socket has at most 107 bytes on Linux and 103 on macOS; the kernel appends ``-1`` to ``-5``.
SOCKET_PREFIX_LENGTH_MAX: Final = 100
_ENGINE: Final = "fluss-lab"
#: Checks of addresses and durations in JSON schemas, which are optional and no notebook has: grammars are compiled as they are
#: imported, which was two thirds of the start of a run.
_UNNEEDED: Final = ("rfc3987_syntax", "isoduration")
#: Run by the kernel before the first cell: by default its socket drops outputs while 1,000 of them wait for their reader.
_KEEP_OUTPUTS: Final = (
    "(lambda thread: thread.schedule(lambda: thread.socket.setsockopt({option}, 0)))(get_ipython().kernel.iopub_thread)"
)
#: Run by the kernel too: IPython's own ``exit`` and ``quit`` end a kernel at some later cell, whatever number they are given.
_END_BY_EXIT: Final = """
class End(type(shell.exiter)):
    def __call__(self, code=None, **_):
        raise SystemExit if code is None else SystemExit(code)
shell.exiter = End(shell)
shell.user_ns.update(exit=shell.exiter, quit=shell.exiter)
__import__("warnings").filterwarnings("ignore", "To exit: use")
"""
#: After a cell has ended its outputs may still be on their way; the run's time limit ends the wait.
_OUTPUTS_TIMEOUT_S: Final = 365 * 86_400
#: Of an error's message in the history; the output notebook has all of it.
_MESSAGE_LENGTH_MAX: Final = 2_000


class _Reports:
    """Lines of JSON for whoever started the run."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "w", buffering=1)
        #: The cell begun last, and how many there are.
        self.cell: tuple[int, int] | None = None
        #: What the kernel answered to a cell that failed: a group of exceptions, and a magic that does not exist, leave no error in it.
        self.failure = ""

    def begin_cell(self, number: int, count: int) -> None:
        self.cell = number, count
        self.send(cell=number, of=count)

    def send(self, **values: Any) -> None:
        self._file.write(json.dumps(values) + "\n")


def main() -> int:
    """Run the notebook of the task on standard input; return the exit code."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return 1  # whoever began to send it is gone
    task = json.loads(line)
    threading.Thread(target=_watch_owner, name="fluss-run-owner", daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    reports = _Reports(task["reports_fd"])
    redactor = Redactor(task["secrets"], Path(task["token_file"]))
    try:
        summary = redactor.plain(_execute(task, reports, redactor))
        reports.send(end=True, summary=summary, note=note_of(reports.failure, reports.cell))
    except Exception as error:
        cell, text = failure_of(error, reports.cell, reports.failure)
        text = redactor.text(text)[:_MESSAGE_LENGTH_MAX]
        print(f"failed: {text}", flush=True)
        reports.send(end=True, error=text, cell=cell)
        return 1
    return 0


def _watch_owner() -> None:
    """End the run when the pipe to its owner ends."""
    while os.read(0, 4096):
        pass
    kill_run(os.environ.get(RUN_VARIABLE, ""))
    os._exit(1)


def import_papermill() -> None:
    """Import papermill without the parts that no run uses."""
    for name in _UNNEEDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # as the import of what is not there
    import papermill  # noqa: F401


def _execute(task: dict[str, Any], reports: _Reports, redactor: Redactor) -> dict[str, Any]:
    import_papermill()
    import papermill
    from papermill.engines import papermill_engines
    from papermill.iorw import papermill_io

    papermill_engines.register(_ENGINE, _engine(task, reports, redactor))
    papermill_io.register(task["output"], _OutputFile())
    with kernel_sockets() as config:
        executed = papermill.execute_notebook(
            _literal(task["source"]),
            _literal(task["output"]),
            parameters=task["parameters"],
            engine_name=_ENGINE,
            kernel_name="python3",
            language="python",
            cwd=task["cwd"],
            progress_bar=False,
            start_timeout=KERNEL_START_TIMEOUT_S,
            request_save_on_cell_execute=True,
            stdout_file=sys.stdout,
            stderr_file=sys.stdout,
            config=config,
        )
    return summary_of(executed)


class _OutputFile:
    """Saves the executed notebook at once, for papermill, which writes over it: a full disk and an end in the middle cut it off."""

    def write(self, text: str, path: str) -> None:
        """Save the notebook.

        Raises:
            StorageError: It cannot be written; what was saved before is there still.
        """
        try:
            write_atomic(Path(path), text.encode(), durable=False)
        except OSError as error:
            raise StorageError(
                f"{path}: the output cannot be saved: {error.strerror or error}; it is as it was saved before: make room on its disk, or "
                "mend its folder"
            ) from error

    def pretty_path(self, path: str) -> str:
        """Return the path for papermill's own messages."""
        return path


def _literal(path: str) -> str:
    """Return a path that papermill, which fills in ``{name}``, takes as it is."""
    return path.replace("{", "{{").replace("}", "}}")


def _engine(task: dict[str, Any], reports: _Reports, redactor: Redactor) -> type:
    from nbclient.exceptions import CellExecutionError
    from papermill.clientwrap import PapermillNotebookClient
    from papermill.engines import NBClientEngine
    from papermill.log import logger

    class Client(PapermillNotebookClient):  # type: ignore[misc]
        """Reports each cell, keeps secrets out of all that is stored, and bounds it."""

        limit = OutputLimit()
        running: Any = None

        def tidy(self) -> None:
            """Join what came in several messages: a secret may be in two of them."""
            if self.running is not None and "outputs" in self.running:
                join_streams(self.running.outputs)
                self.running.outputs[:] = [redactor.plain(each) for each in self.running.outputs]

        def execute_cell(self, cell: Any, cell_index: int, **kwargs: Any) -> Any:
            if cell.cell_type == "code" and cell.source.strip():
                code = [each for each in self.nb.cells if each.cell_type == "code" and each.source.strip()]
                number = next(at for at, each in enumerate(code, 1) if each is cell)
                reports.begin_cell(number, len(code))
                print(f"--- cell {number} of {len(code)}", flush=True)
            self.running = cell
            try:
                return super().execute_cell(cell, cell_index, **kwargs)
            except CellExecutionError as error:
                reports.failure = named_error(error.ename, error.evalue)
                raise
            finally:
                self.tidy()
                self.running = None
                self.limit.next_cell()

        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            msg["content"] = redactor.plain(msg["content"])
            kept = self.limit.admit(msg)
            if kept is not msg and msg["msg_type"] != "error":
                # The log has a limit of its own.
                print(msg["content"].get("text", ""), end="", flush=True)
            return None if kept is None else super().process_message(kept, cell, cell_index)

    class Engine(NBClientEngine):  # type: ignore[misc]
        @classmethod
        def execute_managed_notebook(
            cls, nb_man: Any, kernel_name: str, log_output: bool = False, start_timeout: int = 60, **kwargs: Any
        ) -> Any:
            nb_man.nb.metadata.papermill["input_path"] = task["notebook"]
            kwargs = {name: value for name, value in kwargs.items() if name != "input_path"}
            client = Client(
                nb_man, kernel_name=kernel_name, kernel_manager_class=_kernel_manager(), startup_timeout=start_timeout,
                iopub_timeout=_OUTPUTS_TIMEOUT_S, log=logger, **kwargs,
            )  # fmt: skip
            client.on_notebook_start = lambda **_: _prepare_kernel(client.kc)
            nb_man.save = partial(_save, client, nb_man.save)
            try:
                return client.execute()
            finally:
                for cell in nb_man.nb.cells:
                    if "outputs" in cell:
                        cell.outputs = without_emptied(cell.outputs)

    return Engine


def _kernel_manager() -> type:
    from jupyter_client.manager import AsyncKernelManager

    class KernelManager(AsyncKernelManager):
        """Ends a kernel without an interrupt first: that met what follows the last cell, and whatever processes the cells had started."""

        async def shutdown_kernel(self, now: bool = False, restart: bool = False) -> None:  # type: ignore[override]
            self.shutting_down = True
            await self.request_shutdown(restart=restart)
            await self.finish_shutdown(restart=restart)
            await self.cleanup_resources(restart=restart)

    return KernelManager


def _save(client: Any, write: Callable[..., None], **values: Any) -> None:
    """Save the notebook with what came in several messages in one piece, of the cell under way too."""
    client.tidy()
    cell = client.running
    outputs = None if cell is None else cell.get("outputs")
    if outputs is None:
        write(**values)
        return
    cell.outputs = without_emptied(outputs)
    try:
        write(**values)
    finally:
        cell.outputs = outputs


async def _prepare_kernel(client: Any) -> None:
    """Let cells print faster than their outputs are processed, which the kernel keeps within the run's limit of memory; let `exit` end a run."""
    import zmq

    await client.execute(_KEEP_OUTPUTS.format(option=int(zmq.SNDHWM)), silent=True, reply=True)
    await client.execute(f"exec({_END_BY_EXIT!r}, {{'shell': get_ipython()}})", silent=True, reply=True)


@contextmanager
def kernel_sockets() -> Iterator[Any]:
    """Yield the settings by which the kernel listens on sockets in a private folder, not on TCP ports."""
    from traitlets.config import Config

    with tempfile.TemporaryDirectory(prefix="k-") as folder:
        prefix = f"{folder}/k"
        short = len(os.fsencode(prefix)) <= SOCKET_PREFIX_LENGTH_MAX
        yield Config({"KernelManager": {"transport": "ipc", "ip": prefix}} if short else {})


def summary_of(executed: Any) -> dict[str, Any]:
    """Return what a notebook reported: its outputs of type ``SUMMARY_MIME``, merged.

    Raises:
        InvalidRequestError: It is larger than the record of a run may be: whoever lists runs reads all of each.
    """
    merged: dict[str, Any] = {}
    for cell in executed.cells:
        for item in cell.get("outputs", ()):
            found = item.get("data", {}).get(SUMMARY_MIME, {})
            merged |= found if isinstance(found, dict) else {}
    if (length := len(json.dumps(merged))) > SUMMARY_LENGTH_MAX:
        raise InvalidRequestError(
            f"the summary that the notebook displayed has {length:,} characters as JSON, expected at most {SUMMARY_LENGTH_MAX:,}: write "
            "what is long to a table or a file, and display its name; all cells ran"
        )
    return merged


def named_error(name: str, text: str) -> str:
    """Return an error as it is shown: its class, and its text if it has one."""
    return f"{name}: {text}" if text.strip() else name


def note_of(failure: str, begun: tuple[int, int] | None) -> str | None:
    """Return what is said of a run that succeeded with cells that were not run; None where all were.

    Args:
        failure: What ended its last cell, if something did.
        begun: The cell begun last, and how many there are.
    """
    if begun is None or not failure or begun[0] == begun[1]:
        return None
    return f"cell {begun[0]} of {begun[1]} ended the notebook (exit): the cells after it were not run"


def failure_of(error: Exception, begun: tuple[int, int] | None, answered: str = "") -> tuple[int | None, str]:
    """Return the number of the cell that failed, if one did, and what is said of it.

    Args:
        error: What ended the run.
        begun: The cell begun last, and how many there are.
        answered: What the kernel answered to a cell that failed, where the cell itself has no error.
    """
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    if isinstance(error, PapermillExecutionError):
        line = next((line for line in error.source.splitlines() if line.strip()), "")
        found = named_error(error.ename, error.evalue) if error.traceback or error.evalue else answered or error.ename
        return error.exec_count, f"cell {error.exec_count} ({line.strip()[:60]}): {found}"
    if isinstance(error, DeadKernelError):
        number, place = (None, "") if begun is None else (begun[0], f", in cell {begun[0]} of {begun[1]}")
        return number, f"the kernel ended: killed, out of memory, or crashed{place}"
    if isinstance(error, OSError) and error.filename is not None:
        return None, f"{error.filename}: {error.strerror}; until a run ends its folders must stay, and can be written"
    return None, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
