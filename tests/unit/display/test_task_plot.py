"""The picture of what tasks held."""

from fluss_lab.display.task_plot import tasks_picture


def texts(picture):
    return [each.get_text() for each in picture.drawing.texts]


def test_each_task_has_a_bar_and_says_what_it_answered():
    picture = tasks_picture(["partition 0", "partition 1"], [1_000, 20], [0.25, None])
    assert [round(bar.get_width()) for bar in picture.drawing.patches] == [1_000, 20]
    assert texts(picture) == [" 1,000, hit rate 25%", " 20"]
    assert [each.get_text() for each in picture.drawing.get_yticklabels()] == ["partition 0", "partition 1"]


def test_many_tasks_are_cut_and_none_is_said():
    picture = tasks_picture([f"{number}" for number in range(99)], [1] * 99, [None] * 99)
    assert picture.drawing.get_title(loc="left") == "rows held by 99 tasks, the last 60"
    assert len(picture.drawing.patches) == 60
    assert texts(tasks_picture([], [], [])) == ["No task has ended."]
