"""What the options of advise say, and how wrong ones are refused."""

import math

import pytest

from pdinference.memory.gpus import gpu_memory
from pdinference.memory.product_names import PRODUCTS
from pdinference.performance.calibration import TimeSource
from pdinference.performance.devices import device_of
from pdinference_advise.advice.objectives import parse_objectives
from pdinference_advise.advice.offer import parse_offer
from pdinference_advise.advice.problem import AdviceError
from pdinference_advise.advice.ways import parse_transports, way_of


@pytest.mark.parametrize("product", sorted(PRODUCTS.values()))
def test_each_short_name_is_a_product_of_known_speed_and_memory(product: str) -> None:
    assert device_of(product) is not None
    assert gpu_memory(product).known


@pytest.mark.parametrize("text", ["8xH100", "8 x h100", "8xNVIDIA-H100-80GB-HBM3", "8xNVIDIA-H100"])
def test_gpus_have_short_and_long_names(text: str) -> None:
    (pool,) = parse_offer((text,), ()).pools
    assert (pool.product.lower(), pool.number) == ("nvidia-h100-80gb-hbm3", 8)


def test_prices_make_costs() -> None:
    offer = parse_offer(("8xH100", "4xL40S"), ("H100=2.5", "L40S=0.8"))
    assert [pool.price for pool in offer.pools] == [2.5, 0.8]
    assert offer.priced


@pytest.mark.parametrize(
    ("gpus", "prices", "message"),
    [
        (("H100",), (), "no number of GPUs. Write NUMBERxPRODUCT"),
        (("0xH100",), (), "no number of GPUs"),
        (("2000xH100",), (), "more than 1,024"),
        (("2xH100", "2xH100"), (), "twice"),
        (("2xV900",), (), "the speed of V900 is not known"),
        (("2xH100",), ("H200=2",), "H200 is not among --gpus"),
        (("2xH100", "2xL40S"), ("H100=2",), "there is none for L40S"),
        (("2xH100",), ("H100=free",), "is no price"),
        (("2xH100",), ("H100=nan",), "is no price"),
    ],
)
def test_wrong_gpus_and_prices_are_refused(gpus: tuple[str, ...], prices: tuple[str, ...], message: str) -> None:
    with pytest.raises(AdviceError) as refused:
        parse_offer(gpus, prices)
    assert message in str(refused.value)


def test_transports() -> None:
    nvlink, tcp, rdma, number = parse_transports(("nvlink", "tcp", "rdma=40GB/s", "1.5"))
    assert (nvlink.host_local, tcp.host_local, rdma.rate, number.rate) == (True, False, 40e9, 1.5e9)
    assert [one.name for one in parse_transports(())] == ["nvlink", "tcp"]


@pytest.mark.parametrize("text", ["pigeon", "rdma", "rdma=", "tcp=fast", "tcp=0", "nvlink=-1"])
def test_wrong_transports_are_refused(text: str) -> None:
    with pytest.raises(AdviceError, match="--transport"):
        parse_transports((text,))


def test_the_way_says_where_its_speed_comes_from() -> None:
    nvlink, tcp, stated = parse_transports(("nvlink", "tcp", "rdma=40"))
    assert way_of(nvlink, "NVIDIA-H200", 1).source is TimeSource.INTERPOLATED
    assert way_of(nvlink, "NVIDIA-L40S", 1).source is TimeSource.EXTRAPOLATED
    assert way_of(nvlink, "NVIDIA-L40S", 1).way.name == "PCIe"
    assert way_of(nvlink, "NVIDIA-H200", 2).way.rate == 2 * way_of(nvlink, "NVIDIA-H200", 1).way.rate
    assert way_of(tcp, "NVIDIA-H200", 2).way.rate == way_of(tcp, "NVIDIA-H200", 1).way.rate
    assert way_of(stated, "NVIDIA-H200", 1).way.rate == 40e9


def test_objectives_of_classes_take_what_they_lack_from_the_others() -> None:
    objectives = parse_objectives("500ms", None, 95, ("chat:tpot=20ms", "batch:ttft=60s"), {"chat", "batch", "rest"})
    assert (objectives.of("chat").ttft, objectives.of("chat").tpot) == (0.5, 0.02)
    assert (objectives.of("batch").ttft, objectives.of("rest").ttft) == (60, 0.5)
    assert math.isinf(objectives.of("rest").tpot)


@pytest.mark.parametrize(
    ("ttft", "kinds", "message"),
    [
        ("500", (), '--ttft: "500" is no duration'),
        ("0ms", (), "--ttft"),
        ("2h", (), "--ttft"),
        (None, ("mail:ttft=1s",), "no class mail. It has chat"),
        (None, ("chat:e2e=1s",), "CLASS:ttft=300ms,tpot=20ms"),
        (None, ("chat:ttft=1s", "chat:tpot=1s"), "twice"),
    ],
)
def test_wrong_objectives_are_refused(ttft: str | None, kinds: tuple[str, ...], message: str) -> None:
    with pytest.raises(AdviceError) as refused:
        parse_objectives(ttft, None, 99, kinds, {"chat"})
    assert message in str(refused.value)
