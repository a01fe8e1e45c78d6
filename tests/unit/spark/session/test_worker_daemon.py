"""Which pyspark the workers import."""

from pathlib import Path

import py4j
import pyspark

from fluss_lab.spark.session.worker_daemon import without_zips

_PACKAGES = str(Path(pyspark.__file__).parents[1])
_LIB = Path(pyspark.__file__).parent / "python" / "lib"
_ZIPS = [str(_LIB / "pyspark.zip"), str(_LIB / "py4j-0.10.9.9-src.zip")]


def test_the_archives_of_the_installed_package_go():
    assert Path(py4j.__file__).is_relative_to(_PACKAGES)
    assert without_zips(["", *_ZIPS, "/x", _PACKAGES]) == ["", "/x", _PACKAGES]


def test_they_stay_where_the_package_is_not():
    assert without_zips([*_ZIPS, "/x"]) == [*_ZIPS, "/x"]


def test_archives_of_another_spark_stay(tmp_path):
    other = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    assert without_zips([str(other), _PACKAGES]) == [_PACKAGES], "of a Spark home without them"
    other.parent.mkdir(parents=True)
    other.touch()
    assert without_zips([str(other), _PACKAGES]) == [str(other), _PACKAGES]
    assert without_zips(["/jobs/mine.zip", *_ZIPS, _PACKAGES]) == ["/jobs/mine.zip", _PACKAGES]
