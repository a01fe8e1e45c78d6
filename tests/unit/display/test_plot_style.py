"""Pictures: on no ground, shown once, and a clear error without matplotlib."""

import subprocess
import sys

import pytest

from fluss_lab.display.plot_style import Picture, say_nothing


def test_a_picture_is_a_png_on_no_ground():
    picture = Picture(1.5, "title")
    say_nothing(picture.drawing, "nothing")
    data, size = picture._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert size == {"width": 760, "height": 150}
    image = pytest.importorskip("PIL.Image")
    import io

    found = image.open(io.BytesIO(data))
    assert found.size == (1520, 300)
    assert found.getpixel((0, 0))[3] == 0


def test_pyplot_does_not_know_it():
    code = (
        "import sys\n"
        "from fluss_lab.display.plot_style import Picture\n"
        "Picture(1, 'x')._repr_png_()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_matplotlib_the_error_names_the_extra():
    code = (
        "import sys\n"
        "sys.modules['matplotlib'] = None\n"
        "from fluss_lab.errors import UnsupportedError\n"
        "from fluss_lab.tiering.round.round_report import TieringReports\n"
        "try:\n"
        "    TieringReports().plot()\n"
        "except UnsupportedError as error:\n"
        "    assert \"pip install 'fluss-lab[demo]'\" in str(error), error\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
