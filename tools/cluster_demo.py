"""The lab past one machine, as ``make cluster-demo`` runs it: an object store, a REST catalog, a Spark cluster, a server with TLS.

The curated notebooks run there as they are: where the lake is, and which Spark, is configuration. What is fetched is fetched
once and checked (`tools.beyond.pinned_parts`); all parts listen on loopback and end with the demo, whatever ends it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from fluss_lab.errors import FlussError, NotFoundError
from fluss_lab.jobs import Jobs
from fluss_lab.model.config.config_chain import FILE_NAME, environment_name
from tools.beyond.minio_server import MinioServer
from tools.beyond.nessie_server import NessieServer
from tools.beyond.part_process import PartFailedError
from tools.beyond.pinned_parts import (
    MINIO_VERSION,
    NESSIE_VERSION,
    PartUnavailableError,
    minio_program,
    nessie_jar,
)
from tools.beyond.rest_catalog_server import RestCatalogServer
from tools.beyond.spark_cluster import SparkCluster
from tools.demo import summary_text

FOLDER: Final = Path("cluster-demo")
NOTEBOOKS: Final = Path("notebooks")
WORKERS: Final = 2
#: What a server forgets within seconds, so that a notebook can read a log that only the lake has.
FORGETS_SOON: Final = {
    "kv.snapshot.interval": "1s",
    "kv.snapshot.num-retained": "1",
    "log.retention.check-interval": "500ms",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """A notebook, and the catalog of the lab that it runs in.

    Attributes:
        notebook: Its name.
        catalog: In words.
        lake: Starts the catalog, and returns the lab's ``datalake.iceberg.*`` options without that prefix.
    """

    notebook: str
    catalog: str
    lake: Callable[[ExitStack, MinioServer, Path], Mapping[str, str]]


def _nessie(stack: ExitStack, minio: MinioServer, folder: Path) -> Mapping[str, str]:
    location = minio.make_bucket("quickstart")
    return stack.enter_context(NessieServer(minio, location, folder=folder / "nessie")).lake_options()


def _rest(stack: ExitStack, minio: MinioServer, folder: Path) -> Mapping[str, str]:
    place = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": minio.make_bucket("replay")}
    server = stack.enter_context(RestCatalogServer({**place, **minio.lake_options()}))
    return {**server.lake_options(), **minio.lake_options()}


#: Nessie's REST face gives the newest snapshot of a table only: what looks at older ones is shown with a catalog that keeps them.
STAGES: Final = (
    Stage("01_quickstart", f"Nessie {NESSIE_VERSION}", _nessie),
    Stage("04_changelog_replay", "REST over SQLite, in this process", _rest),
)


def main() -> int:
    """Run the demo in ``cluster-demo/`` under the working directory; return the exit code."""
    signal.signal(signal.SIGTERM, _stop)
    folder = FOLDER.absolute()
    try:
        if not NOTEBOOKS.is_dir():
            raise NotFoundError(f"{NOTEBOOKS}: not found; run this from the root of a checkout of fluss_lab")
        with ExitStack() as stack:
            _run(stack, folder)
    except KeyboardInterrupt:
        print("cluster-demo: stopped; every part has ended", file=sys.stderr)
        return 130
    except (FlussError, PartUnavailableError, PartFailedError) as error:
        print(f"cluster-demo: {error}", file=sys.stderr)
        print(f"every part has ended; logs: {folder}", file=sys.stderr)
        return 1
    return 0


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _run(stack: ExitStack, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    print("parts (what this machine does not have is fetched once, up to 10 minutes) ...", flush=True)
    minio = stack.enter_context(MinioServer(folder / "minio"))
    _say("MinIO", MINIO_VERSION, minio.endpoint, minio_program())
    _say("Nessie", NESSIE_VERSION, "started with its lab", nessie_jar())
    spark = stack.enter_context(SparkCluster(folder, workers=WORKERS))
    _say("Spark standalone", f"{spark.version}, {spark.alive_workers()} workers", spark.master, None)
    environment = {
        "SPARK_CONF_DIR": str(spark.write_settings(folder / "spark-conf")),
        environment_name("client.spark.master"): spark.master,
    }
    stack.enter_context(_environment(environment))
    certificate = _certificate(folder / "tls")
    for number, stage in enumerate(STAGES, 1):
        with ExitStack() as inner:
            _run_stage(inner, stage, folder / stage.notebook, minio, certificate)
        if len(ran := spark.applications()) < number:
            raise PartFailedError(f"{stage.notebook} used another Spark than {spark.master}")
        _line("Spark application", f"{ran[-1]}, by {spark.master}")
    print(f"every part has ended well; logs, notebooks and objects stay in {folder}")


def _run_stage(
    stack: ExitStack, stage: Stage, folder: Path, minio: MinioServer, certificate: Mapping[str, str]
) -> None:
    folder.mkdir(mode=0o700)
    print(f"\n{stage.notebook}, on {stage.catalog} ...", flush=True)
    lake = stage.lake(stack, minio, folder)
    lab = folder / "lab"
    lab.mkdir(mode=0o700)
    options = {**certificate, **FORGETS_SOON, **{f"datalake.iceberg.{key}": value for key, value in lake.items()}}
    _write_private(lab / FILE_NAME, "".join(f'"{key}" = "{value}"\n' for key, value in options.items()))
    stack.callback(_fluss_lab, "down", str(lab), check=False)
    _fluss_lab("up", str(lab))
    run = Jobs(lab).run(NOTEBOOKS / f"{stage.notebook}.ipynb", on_line=_progress if sys.stderr.isatty() else None)
    if run.summary:
        print(summary_text(run.summary))
    _line("whole run", f"{run.seconds or 0:.1f} s")
    _line("output notebook", run.output)
    _line("server log", lab / "server.log")


def _fluss_lab(*arguments: str, check: bool = True) -> None:
    """Run a command of the shell.

    Raises:
        PartFailedError: It failed; the text has what it said.
    """
    done = subprocess.run(
        [sys.executable, "-m", "fluss_lab.cli", *arguments], capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        raise PartFailedError(f"fluss-lab {arguments[0]} ended with code {done.returncode}: {done.stderr.strip()}")


def _certificate(folder: Path) -> dict[str, str]:
    """Make a certificate of this machine's loopback, for the time of the demo; return the options that use it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise PartUnavailableError(
            "no openssl on the path to make the server's certificate with: install the package openssl"
        )
    folder.mkdir(mode=0o700)
    certificate, key = folder / "lab.pem", folder / "lab.key"
    done = subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise PartFailedError(f"{openssl} ended with code {done.returncode}: {done.stderr.strip()}")
    key.chmod(0o600)
    return {"server.tls.certificate": str(certificate), "server.tls.key": str(key)}


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _line(what: str, value: object) -> None:
    print(f"{what:<28}{value}", flush=True)


def _say(part: str, version: str, where: str, program: Path | None) -> None:
    _line(part, f"{version}, {where}")
    if program is not None:
        with program.open("rb") as opened:
            _line("", f"sha256 {hashlib.file_digest(opened, 'sha256').hexdigest()}  {program}")


def _progress(line: str) -> None:
    if line.startswith("--- cell"):
        print(f"\r{line.strip('- ')} ", end="", file=sys.stderr, flush=True)


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
