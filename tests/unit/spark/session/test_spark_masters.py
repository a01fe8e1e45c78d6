"""What a master's name says."""

import pytest

from fluss_lab.spark.session.worker_placement import attempts_of, is_one_process, runs_here


@pytest.mark.parametrize(
    ("master", "one_process", "here"),
    [
        ("local", True, True),
        ("local[4]", True, True),
        ("local[*,3]", True, True),
        ("local-cluster[2,1,1024]", False, True),
        ("spark://127.0.0.1:7077", False, True),
        ("spark://localhost:7077", False, True),
        ("spark://[::1]:7077", False, True),
        ("spark://127.0.0.1:7077,localhost:7078", False, True),
        ("spark://127.0.0.1:7077,10.0.0.1:7077", False, False),
        ("spark://host:7077", False, False),
        ("spark://10.1.2.3:7077", False, False),
        ("yarn", False, False),
        ("k8s://https://127.0.0.1:6443", False, False),
        ("localhost", False, False),
    ],
)
def test_where_a_master_runs(master, one_process, here):
    assert (is_one_process(master), runs_here(master)) == (one_process, here)


@pytest.mark.parametrize(
    ("master", "configured", "expected"),
    [
        ("local[*,3]", None, 3),
        ("local[2, 4]", None, 4),
        ("local[*]", "8", 1),
        ("local", None, 1),
        ("local-cluster[2,1,1024]", None, 4),
        ("spark://host:7077", "7", 7),
        ("k8s://https://host", None, 4),
    ],
)
def test_attempts_are_those_of_the_master(master, configured, expected):
    assert attempts_of(master, configured) == expected
