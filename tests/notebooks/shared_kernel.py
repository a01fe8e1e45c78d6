"""A kernel that runs notebooks one after another by papermill: imports and Spark's JVM start once for all of them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import nbformat
import papermill
from nbclient.util import run_sync
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.log import logger

from fluss_lab.closing import Closing
from fluss_lab.jobs.notebook_process import kernel_sockets

_ENGINE: Final = "fluss-lab-shared-kernel"
#: No name of the notebook before is left.
_BEGIN: Final = "get_ipython().run_line_magic('reset', '-f')"
_BEGIN_TIMEOUT_S: Final = 60


class SharedKernel(Closing):
    """Runs notebooks in one kernel. One that fails takes the kernel with it: the next gets a new one.

    Args:
        folder: The working directory of all notebooks; Spark's JVM and its Python workers keep it as long as they live.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._resources = ExitStack()
        #: The client that ran last: it has the kernel, and the channels to it.
        self._client: Any = None

    def run(self, notebook: Path, output: Path, **parameters: str) -> Any:
        """Run a notebook from top to bottom; return the executed one.

        Raises:
            Exception: A cell failed, or the kernel died.
        """
        papermill_engines.register(_ENGINE, self._engine())
        try:
            papermill.execute_notebook(
                str(notebook), str(output), parameters=parameters, engine_name=_ENGINE, kernel_name="python3",
                cwd=str(self._folder), progress_bar=False, start_timeout=120,
            )  # fmt: skip
        except BaseException:
            self.close()
            raise
        return nbformat.read(output, as_version=4)

    def close(self) -> None:
        """End the kernel."""
        client, self._client = self._client, None
        if client is not None:
            client._cleanup_kernel()
        self._resources.close()

    def _engine(self) -> type:
        def begin(notebook: Any, kernel_name: str, start_timeout: int) -> Any:
            config = {} if self._client else {"config": self._resources.enter_context(kernel_sockets())}
            client = PapermillNotebookClient(
                notebook, kernel_name=kernel_name, startup_timeout=start_timeout, log=logger, **config
            )
            if self._client is not None:
                client.km, client.kc = self._client.km, self._client.kc
            with client.setup_kernel(cleanup_kc=False):
                self._client = client
                ask = run_sync(client.kc.execute_interactive)
                done = ask(_BEGIN, silent=True, timeout=_BEGIN_TIMEOUT_S)
            assert done["content"]["status"] == "ok", done
            return client

        class Engine(NBClientEngine):  # type: ignore[misc]
            @classmethod
            def execute_managed_notebook(
                cls, nb_man: Any, kernel_name: str, log_output: bool = False, start_timeout: int = 60, **kwargs: Any
            ) -> Any:
                return begin(nb_man, kernel_name, start_timeout).execute(cleanup_kc=False)

        return Engine
