"""Hints that name the place which they are about."""

import pytest

from onnxreg.cli import hints
from onnxreg.schema.core.errors import SERVED, VERIFY_ADVICE, ForkError, IntegrityError, name_registry_in_hint


@pytest.mark.parametrize("kind", [IntegrityError, ForkError])
def test_a_hint_names_the_place_as_a_shell_takes_it(kind: type[IntegrityError]) -> None:
    with pytest.raises(kind) as caught, name_registry_in_hint("/srv/my models"):
        raise kind("a blob is damaged", VERIFY_ADVICE)
    assert caught.value.code == "verify-extent" and caught.value.facts == {"place": "/srv/my models"}
    assert "`reg verify --remote '/srv/my models'`" in hints.text(caught.value.advice)
    assert caught.value.message == "a blob is damaged"


def test_a_server_does_not_say_where_its_registry_lies() -> None:
    with pytest.raises(IntegrityError) as caught, name_registry_in_hint(SERVED):
        raise IntegrityError("a blob is damaged", VERIFY_ADVICE)
    assert caught.value.advice is VERIFY_ADVICE
    assert "--remote PLACE" in hints.text(VERIFY_ADVICE)
