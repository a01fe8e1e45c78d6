"""``fluss-lab repair``: tables whose lake table was changed or whose logs are damaged, and labs that were moved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from fluss_lab.cli.folder_argument import folder_option, opened_lab
from fluss_lab.errors import InvalidRequestError, UnsupportedError

if TYPE_CHECKING:
    from fluss_lab.lake.iceberg.maintenance.warehouse_relocation import Relocated


@click.command()
@click.argument("target")
@click.option("--adopt", is_flag=True, help="Accept the lake table as it is; TARGET is the table's path.")
@click.option(
    "--accept-gaps", is_flag=True, help="With --adopt: continue without offsets that are no longer available."
)
@click.option(
    "--skip-corrupt", is_flag=True, help="Give up the unreadable records of a table's logs; TARGET is its path."
)
@click.option(
    "--discard-before",
    is_flag=True,
    help="With --skip-corrupt: lose more than the damaged records, as shown in the plan.",
)
@click.option("--relocate", is_flag=True, help="Rewrite the paths of a lab that was moved; TARGET is its folder.")
@click.option("--yes", is_flag=True, help="Do it. Without it only the plan is shown (not needed with --relocate).")
@folder_option
def repair(
    target: str,
    *,
    adopt: bool,
    accept_gaps: bool,
    skip_corrupt: bool,
    discard_before: bool,
    relocate: bool,
    yes: bool,
    folder: Path,
) -> None:
    """Reconcile lake and cluster, or give up damaged records.

    TARGET is a table's path with --adopt, after another program changed its lake table, rolled it back or expired its
    snapshots, or after records left the cluster while the lake was disabled; with --skip-corrupt, while its server
    runs, when a log is damaged or gone and there is no copy of the file: exactly what cannot be read is given up, from the
    lake if it holds it. It is a lab's folder with --relocate.
    """
    if adopt + skip_corrupt + relocate != 1:
        raise InvalidRequestError("repair: expected one of TABLE --adopt, TABLE --skip-corrupt or FOLDER --relocate")
    if relocate and yes:
        raise InvalidRequestError("repair --relocate: --yes goes with --adopt and --skip-corrupt")
    if accept_gaps and not adopt:
        raise InvalidRequestError("repair: --accept-gaps goes with --adopt")
    if discard_before and not skip_corrupt:
        raise InvalidRequestError("repair: --discard-before goes with --skip-corrupt")
    if skip_corrupt:
        _skip_corrupt(target, folder, discard_before=discard_before, yes=yes)
    elif adopt:
        _adopt(target, folder, accept_gaps=accept_gaps, yes=yes)
    else:
        _relocate(Path(target).expanduser().absolute())


def _relocate(place: Path) -> None:
    done = relocate_lab(place)
    click.echo(
        f"{place}: rewrote {done.tables} table(s) in the catalog, {done.metadata} metadata file(s), {done.lists} list(s), "
        f"{done.manifests} manifest(s), {done.deletes} delete file(s)"
    )


def _skip_corrupt(name: str, folder: Path, *, discard_before: bool, yes: bool) -> None:
    from fluss_lab.model import TablePath
    from fluss_lab.tiering.repair.damage_repair import give_up_damage, plan_damage_repair
    from fluss_lab.tiering.repair.damage_repair_plan import DISCARD

    path = TablePath.parse(name)
    with opened_lab(folder) as lab:
        if yes:
            done = give_up_damage(
                lab.connection, path, lab.lake_storage, lambda storage: lab.compute.executor(storage, f"repair-{path}"),
                discard_before=discard_before,
            )  # fmt: skip
            click.echo(repr(done))
            return
        plan = plan_damage_repair(lab.connection, path)
    if plan.is_empty:
        raise InvalidRequestError(f"repair: {plan!r}")
    click.echo(repr(plan))
    discard = f" {DISCARD}" if plan.needs_word else ""
    click.echo(f"nothing was changed; `fluss-lab repair {path} --skip-corrupt{discard} --yes` does it")


def _adopt(name: str, folder: Path, *, accept_gaps: bool, yes: bool) -> None:
    from fluss_lab.model import TablePath
    from fluss_lab.tiering.repair.lake_repair import adopt, plan_repair

    path = TablePath.parse(name)
    with opened_lab(folder) as lab:
        if yes:
            done = adopt(lab.connection, lab.lake_storage(), path, accept_gaps=accept_gaps)
            click.echo(repr(done))
            return
        plan = plan_repair(lab.connection, lab.lake_storage(), path)
    click.echo(repr(plan))
    if plan.reason is not None:
        gaps = " --accept-gaps" if plan.lost else ""
        click.echo(f"nothing was changed; `fluss-lab repair {path} --adopt{gaps} --yes` does it")


#: Where a lab's own lake is, in its folder.
_CATALOG: Final = Path("lake") / "catalog.db"
_WAREHOUSE: Final = Path("lake") / "warehouse"


def relocate_lab(folder: Path) -> Relocated:
    """Rewrite the paths of a lab that was moved, or copied, so that it can be used where it is.

    Args:
        folder: The lab's, absolute. After an interruption the lab is still refused; run this again.

    Returns:
        The number of rewritten files.

    Raises:
        LabError: The folder is not a lab's.
        LabLockedError: A server runs on it.
        UnsupportedError: Its lake is configured to lie in the folder that was moved.
        CorruptDataError, OSError: A file of its lake cannot be read or written.
    """
    from fluss_lab.lake.iceberg.maintenance.warehouse_relocation import Places, Relocated, relocate_warehouse
    from fluss_lab.server.folder.lab_relocation import relocation

    with relocation(folder) as places:
        if not places:
            return Relocated()
        _check_configured(folder, places)
        before = tuple(place / _WAREHOUSE for place in places)
        return relocate_warehouse(folder / _WAREHOUSE, folder / _CATALOG, Places(before, folder / _WAREHOUSE))


def _check_configured(folder: Path, places: tuple[Path, ...]) -> None:
    """Refuse a lake whose configured path is in the lab's old folder: the configuration would still name it."""
    from fluss_lab.model.config.lake_options import LAKE_PREFIX, mask_secret
    from fluss_lab.server.cluster import read_options
    from fluss_lab.server.server_options import resolve_server_options

    options = {**read_options(folder), **resolve_server_options({}, folder)}
    for key, value in options.items():
        if key.startswith(LAKE_PREFIX) and any(f"{place}/" in value for place in places):
            raise UnsupportedError(
                f"option {key!r} is {mask_secret(key, value)!r}: it names the lab's old folder; only a lab's own lake (its folder "
                "`lake`) is relocated: move the configured lake back, or outside of the lab's folder"
            )
