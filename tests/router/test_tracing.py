"""Spans show where the time to the first token goes, and vLLM's spans hang below them."""

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.router.engines import fleet

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


async def test_a_request_has_a_span_with_one_for_each_stage() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with fleet("p", "d", spans=provider) as world:
        assert (await world.post({"stream": True}, headers=SENT))[0] == 200
        got = [world[name].headers[0]["traceparent"] for name in ("p", "d")]
    found = {span.name: span for span in exporter.get_finished_spans()}
    request = found.pop("/v1/completions")
    assert request.parent is not None
    assert format(request.parent.span_id, "016x") == PARENT
    assert request.attributes == {"http.response.status_code": 200, "pdinference.outcome": "answered"}
    assert set(found) == {"prefill", "first_token", "tokens"}
    assert all(span.parent == request.get_span_context() for span in found.values())
    assert got == [_traceparent(found[name]) for name in ("prefill", "first_token")]


async def test_without_a_collector_the_trace_of_the_client_goes_to_vllm() -> None:
    async with fleet("p", "d") as world:
        await world.post(headers=SENT)
        assert [world[name].headers[0]["traceparent"] for name in ("p", "d")] == [SENT["traceparent"]] * 2
        await world.post()
        assert all("traceparent" not in world[name].headers[1] for name in ("p", "d"))


def _traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"00-{format(context.trace_id, '032x')}-{format(context.span_id, '016x')}-01"
