"""What the compiling side tells the runtime of a partitioned module."""

from __future__ import annotations

import pytest

from collage.compile.deployment import Deployment, Direct, deployment_of
from tests.collage.runtime.conftest import partitioned

WHOLE = Direct("collage_openvino_0", (0, 1), (0, 1, 2), any_address=True)
EXPECTED = {
    "openvino": Deployment(("openvino",), (0, 1), WHOLE),
    "other order": Deployment(("openvino",), (0, 1), Direct("collage_openvino_0", (1, 0), (1, 0), any_address=True)),
    "tvm": Deployment(("tvm",), (), None),
    "mixed": Deployment(("openvino", "tvm"), (), None),
    "engines": Deployment(("onnxruntime", "openvino"), (0, 1), None),
    "given back": Deployment(("openvino",), (), None),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_deployments(name: str) -> None:
    assert deployment_of(*partitioned(name)) == EXPECTED[name]


def test_an_engine_is_alone_where_no_other_pool_works() -> None:
    assert [name for name, found in EXPECTED.items() if found.alone] == ["openvino", "other order", "given back"]
