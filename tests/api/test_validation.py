"""Messages of the command line and the operator for invalid resources."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.validation import InvalidResourceError, validated

Make = Callable[..., dict[str, Any]]


def problems(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidResourceError) as caught:
        validated(document)
    found: dict[str, str] = {}
    for problem in caught.value.problems:
        found[problem.field] = f"{found.get(problem.field, '')} {problem.message}".strip()
    return found


def test_a_minimal_document_is_valid(document: Make) -> None:
    assert validated(document()).spec.decode.replicas == 1


def test_all_problems_are_named_at_once(document: Make) -> None:
    found = problems(document(decode={"replicas": -1}, router={"replicas": "many"}, modell={}))
    assert found.keys() == {"spec.decode.replicas", "spec.router.replicas", "spec.modell"}


def test_a_missing_field_is_named_and_hides_nothing_else(document: Make) -> None:
    assert problems(document(model={}, decode={"parallelism": {"pipeline": 2}})) == {
        "spec.model.source": "This field is required.",
        "spec.decode.parallelism.pipeline": "Use 1: NIXL cannot transfer the KV cache to a D instance with several "
        "pipeline stages. If the model does not fit one device, raise decode.parallelism.tensor.",
    }
    nameless = {**document(decode={"replicas": -1}), "metadata": {}}
    assert problems(nameless).keys() == {"metadata.name", "spec.decode.replicas"}
    assert problems({"spec": "llama"}).keys() == {"metadata", "spec"}


def test_what_lacks_a_member_is_left_out_with_all_that_needs_it(document: Make) -> None:
    term = {"matchExpressions": [{"key": "zone"}]}
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    made = document(decode={"placement": {"nodeAffinity": affinity}, "parallelism": {"pipeline": 2}})
    first = "spec.decode.placement.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
    assert problems(made).keys() == {
        f"{first}.preference.matchExpressions[0].operator",
        "spec.decode.parallelism.pipeline",
    }


def test_an_item_that_lost_a_member_is_not_blamed_for_it(document: Make) -> None:
    tolerations = [{"key": "a b"}, {"operator": "Never"}, {"operator": "Exists"}, {"operator": "Equal"}]
    found = problems(document(decode={"placement": {"tolerations": tolerations}}))
    assert [field.removeprefix("spec.decode.placement.tolerations") for field in found] == [
        "[0].key",
        "[1].operator",
        "[3].operator",
    ]


def test_items_that_moved_up_are_not_blamed_by_their_new_number(document: Make) -> None:
    expressions = [{"key": "zone"}, {"key": "zone", "operator": "In"}]
    nodes = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    }
    (field,) = problems(document(decode={"placement": {"nodeAffinity": nodes}}))
    assert field.endswith("matchExpressions[0].operator")


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (
            {"decode": {"replicas": "2"}},
            "decode.replicas",
            'This must be of type integer, not "2". Write it without quotes: 2.',
        ),
        ({"decode": {"replicas": True}}, "decode.replicas", "This must be of type integer, not true."),
        ({"decode": {"replicas": -1}}, "decode.replicas", "This should be greater than or equal to 0, not -1."),
        ({"model": {"source": {"path": "/a"}, "inspect": 1}}, "model.inspect", "This must be of type boolean, not 1."),
        (
            {"engine": {"env": []}},
            "engine.env",
            "This must be of type object, not []. Write `name: value` for each member, without a dash.",
        ),
        (
            {"router": {"tls": "x" * 99}},
            "router.tls",
            f'This must be of type object, not "{"x" * 59}…. Fields of spec.router.tls: secretName.',
        ),
        (
            {"model": {"source": {"huggingFace": "Qwen/Qwen3-32B"}}},
            "model.source.huggingFace",
            (
                'This must be of type object, not "Qwen/Qwen3-32B". Write huggingFace: {repository: OWNER/NAME}. '
                "Fields of spec.model.source.huggingFace: repository, revision, tokenSecret."
            ),
        ),
        (
            {"decode": {"accelerator": {"products": "NVIDIA-L4"}}},
            "decode.accelerator.products",
            'This must be of type array, not "NVIDIA-L4". Write a list: ["NVIDIA-L4"].',
        ),
        (
            {"router": {"clients": {"namespace": "a"}}},
            "router.clients",
            'This must be of type array, not {"namespace": "a"}. Write a list, with a dash before each item.',
        ),
        (
            {"decode": {"placement": {"nodeSelector": {"gpu": True}}}},
            "decode.placement.nodeSelector.gpu",
            'This must be of type string, not true. Write it in quotes: "true".',
        ),
        ({"rollout": {"strategy": "A"}}, "rollout.strategy", 'This should be "BlueGreen" or "Recreate", not "A".'),
        ({"engine": {"image": "i" * 513}}, "engine.image", "Too long: use at most 512 characters."),
        (
            {"parameter": {"parallelism": {"layerPartition": [1] * 65}}},
            "parameter.parallelism.layerPartition",
            "This must have at most 64 items, not 65.",
        ),
        (
            {"decode": {"accelerator": {"products": ["L4", "L4"]}}},
            "decode.accelerator.products",
            "L4 occurs 2 times. Write it once.",
        ),
        (
            {"decod": None},
            "decod",
            "Unknown field. Did you mean decode?",
        ),
        (
            {"replicas": 2},
            "replicas",
            "Unknown field. It is a field of spec.router, spec.decode, spec.parameter.",
        ),
        (
            {"router": {"tls": {"secretName": "a", "cert": "a"}}},
            "router.tls.cert",
            "Unknown field. Fields of spec.router.tls: secretName.",
        ),
        (
            {"decode": {"placement": {"tolerations": [{"keys": "a"}]}}},
            "decode.placement.tolerations[0].keys",
            "Unknown field. Did you mean key?",
        ),
    ],
)
def test_the_schema_is_explained_in_plain_words(document: Make, spec: dict[str, Any], field: str, message: str) -> None:
    assert problems(document(**spec)) == {f"spec.{field}": message}


@pytest.mark.parametrize(
    ("spec", "field", "advice"),
    [
        ({"decode": {"nodeSelector": {}}}, "decode.nodeSelector", "Use placement.nodeSelector of the role."),
        (
            {"decode": {"accelerator": {"count": 2}}},
            "decode.accelerator.count",
            "Use parallelism.tensor of the role: each rank gets one GPU.",
        ),
        ({"decode": {"tolerations": []}}, "decode.tolerations", "Use placement.tolerations of the role."),
        (
            {"model": {"source": {"persistentVolumeClaim": {"claimName": "m", "namespace": "a"}}}},
            "model.source.persistentVolumeClaim.namespace",
            "Leave it out: pods can use only Secrets, ConfigMaps and claims of the resource's own namespace.",
        ),
        (
            {"decode": {"autoscaling": {"min": 1, "maxReplicas": 4}}},
            "decode.autoscaling.min",
            "Use minReplicas of autoscaling of the role.",
        ),
        ({"prefill": {}}, "prefill", "The role that does prefill is spec.parameter."),
        ({"decode": {"gpus": 2}}, "decode.gpus", "Use parallelism.tensor of the role: each rank gets one GPU."),
        (
            {"engine": {"tensorParallelSize": 2}},
            "engine.tensorParallelSize",
            "For vLLM's --tensor-parallel-size, use parallelism.tensor of the role.",
        ),
        ({"max_model_len": 8}, "max_model_len", "For vLLM's --max-model-len, use spec.model.maxModelLength."),
    ],
)
def test_the_words_of_other_systems_lead_to_the_field(
    document: Make, spec: dict[str, Any], field: str, advice: str
) -> None:
    assert problems(document(**spec)) == {f"spec.{field}": f"Unknown field. {advice}"}


def test_a_namespace_has_the_form_that_the_api_server_wants(document: Make) -> None:
    made = document()
    made["metadata"]["namespace"] = "Team_A"
    assert problems(made) == {"metadata.namespace": "Write the name of a namespace, for example team-a."}


def test_names_of_python_are_unknown_fields(document: Make) -> None:
    model = {"source": {"hugging_face": {"repository": "a/b"}}, "max_model_length": 8}
    assert problems(document(model=model)) == {
        "spec.model.source.hugging_face": "Unknown field. Did you mean huggingFace?",
        "spec.model.max_model_length": "Unknown field. Did you mean maxModelLength?",
    }


def test_what_is_null_was_not_given(document: Make) -> None:
    assert validated(document(decode={"replicas": None}, parameter=None)).spec.decode.replicas == 1


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"decode": {"kvTiers": {"disk": {"size": "1Gi"}}}}, "spec.decode.kvTiers.cpu", "required"),
        ({"decode": {"kvTiers": {"cpu": {"size": "500m"}}}}, "spec.decode.kvTiers.cpu.size", "64Gi"),
        (
            {"decode": {"kvTiers": {"cpu": {"size": "8Gi"}}, "resources": {"limits": {"memory": "8Gi"}}}},
            "spec.decode.resources.limits",
            "kvTiers.cpu.size",
        ),
        (
            {"decode": {"kvTiers": {"cpu": {"size": 2**20}}}, "engine": {"enablePrefixCaching": False}},
            "spec.decode.kvTiers",
            "Remove enablePrefixCaching",
        ),
        (
            {
                "parameter": {"kvTiers": {"cpu": {"size": "1Gi"}}},
                "transfer": {"connector": "LMCache", "lmCache": {"remoteUrl": "lm://a:1"}},
            },
            "spec.transfer.connector",
            "its own tiers",
        ),
        (
            {
                "parameter": {"parallelism": {"tensor": 2}},
                "decode": {"parallelism": {"tensor": 4}},
                "transfer": {"connector": "LMCache", "lmCache": {"remoteUrl": "lm://a:1"}},
            },
            "spec.parameter.parallelism",
            "Set the same parallelism.tensor",
        ),
        (
            {"decode": {"accelerator": {"type": "CPU"}}, "transfer": {"connector": "Mooncake"}},
            "spec.transfer.connector",
            "Use Nixl",
        ),
        ({"transfer": {"connector": "SharedStorage"}}, "spec.transfer.sharedStorage", "claimName"),
        ({"model": {"source": {}}}, "spec.model.source", "exactly one"),
        (
            {"model": {"source": {"path": "/a", "persistentVolumeClaim": {"claimName": "b"}}}},
            "spec.model.source",
            "one",
        ),
        ({"model": {"source": {"path": "/../etc"}}}, "spec.model.source.path", "absolute path"),
        ({"model": {"source": {"path": "relative"}}}, "spec.model.source.path", "absolute path"),
        (
            {"model": {"source": {"huggingFace": {"repository": "--trust-remote-code"}}}},
            "spec.model.source.huggingFace.repository",
            "owner/name",
        ),
        ({"engine": {"args": {"model": "other"}}}, "spec.engine.args", "spec.model.source"),
        ({"decode": {"args": {"kv-transfer-config": {}}}}, "spec.decode.args", "spec.transfer"),
        ({"engine": {"args": {"--seed": 1}}}, "spec.engine.args.--seed", "without leading dashes"),
        ({"engine": {"args": {"seed": None}}}, "spec.engine.args.seed", "Remove the option"),
        ({"engine": {"args": {"x": ["a", "--port=1"]}}}, "spec.engine.args.x", "must not start with a dash"),
        ({"engine": {"env": {"VLLM_SERVER_DEV_MODE": "1"}}}, "spec.engine.env", "VLLM_SERVER_DEV_MODE"),
        ({"parameter": {"parallelism": {"tensor": 2}}}, "spec.decode.parallelism.tensor", "multiple of spec.parameter"),
        ({"decode": {"parallelism": {"pipeline": 2}}}, "spec.decode.parallelism.pipeline", "decode.parallelism.tensor"),
        (
            {"parameter": {"parallelism": {"pipeline": 2, "layerPartition": [1]}}},
            "spec.parameter.parallelism.layerPartition",
            "one number of layers for each",
        ),
        (
            {"parameter": {"parallelism": {"pipeline": 3, "nodes": 2}}},
            "spec.parameter.parallelism.nodes",
            "same number of devices",
        ),
        (
            {"parameter": {"parallelism": {"pipeline": 2}, "kvTiers": {"cpu": {"size": "1Gi"}}}},
            "spec.parameter.kvTiers",
            "cannot combine tiers and the KV transfer from pipeline stages",
        ),
        (
            {"parameter": {"parallelism": {"data": 2, "nodes": 2}}},
            "spec.parameter.parallelism.data",
            "more replicas",
        ),
        (
            {"parameter": {"parallelism": {"tensor": 2, "data": 3, "nodes": 2, "expert": True}}},
            "spec.parameter.parallelism.data",
            "Use a multiple of nodes",
        ),
        (
            {"decode": {"parallelism": {"tensor": 2, "nodes": 2}}},
            "spec.decode.parallelism.nodes",
            "data-parallel ranks",
        ),
        ({"parameter": {"placement": {"domain": "rack"}}}, "spec.parameter.placement.domain", "on one node"),
        ({"parameter": {"nodePools": [{}]}}, "spec.parameter.nodePools", "one entry for each node"),
        (
            {"parameter": {"parallelism": {"pipeline": 2, "nodes": 2}, "nodePools": [{}, {}, {}]}},
            "spec.parameter.nodePools",
            "one entry for each node",
        ),
        (
            {
                "parameter": {
                    "accelerator": {"type": "CPU"},
                    "parallelism": {"pipeline": 2, "nodes": 2},
                    "nodePools": [{}, {"products": ["A100"]}],
                }
            },
            "spec.parameter.nodePools",
            "nodeSelector",
        ),
        (
            {"parameter": {"parallelism": {"pipeline": 2, "nodes": 2}, "nodePools": [{}, {"products": ["A100"]}]}},
            "spec.parameter.nodePools",
            "maxNumBatchedTokens and maxNumSeqs",
        ),
        (
            {
                "parameter": {"parallelism": {"tensor": 2, "nodes": 2}},
                "decode": {"parallelism": {"tensor": 2}},
                "transfer": {"connector": "Mooncake"},
            },
            "spec.parameter.parallelism.nodes",
            "transfer.connector Nixl",
        ),
        ({"parameter": {"args": {"nnodes": 2}}}, "spec.parameter.args", "spec.parameter.parallelism.nodes"),
        (
            {"model": {"source": {"path": "/a"}, "chatTemplate": {"inline": "{% if %}"}}},
            "spec.model.chatTemplate.inline",
            "Line 1",
        ),
        (
            {"model": {"source": {"path": "/a"}, "chatTemplate": {"inline": "Hello"}}},
            "spec.model.chatTemplate.inline",
            "Jinja2",
        ),
        ({"model": {"source": {"path": "/a"}, "chatTemplate": {}}}, "spec.model.chatTemplate", "exactly one"),
        ({"engine": {"args": {"dtype": "half"}}}, "spec.engine.args", "spec.model.dtype"),
        (
            {"decode": {"accelerator": {"type": "CPU", "devices": {"deviceClassName": "gpu.nvidia.com"}}}},
            "spec.decode.accelerator.devices",
            "takes no devices",
        ),
        (
            {"decode": {"accelerator": {"resourceName": "amd.com/gpu", "devices": {"deviceClassName": "gpu.amd.com"}}}},
            "spec.decode.accelerator.resourceName",
            "exclude each other",
        ),
        (
            {"decode": {"accelerator": {"products": ["H100"], "devices": {"deviceClassName": "gpu.nvidia.com"}}}},
            "spec.decode.accelerator.products",
            "devices.selectors",
        ),
        (
            {"decode": {"accelerator": {"devices": {"deviceClassName": "g", "matchAttribute": "numaNode"}}}},
            "spec.decode.accelerator.devices.matchAttribute",
            "with a domain",
        ),
        (
            {
                "decode": {
                    "parallelism": {"tensor": 8, "data": 5},
                    "accelerator": {"devices": {"deviceClassName": "gpu.nvidia.com"}},
                }
            },
            "spec.decode.parallelism",
            "32 devices at most",
        ),
        ({"transfer": {"rdma": {"resourceName": "ib"}}}, "spec.transfer.rdma.resourceName", "rdma/ib"),
        (
            {"transfer": {"rdma": {"resourceName": "rdma/ib", "netDevices": ["mlx5_0:1,^x"]}}},
            "spec.transfer.rdma.netDevices[0]",
            "mlx5_0:1",
        ),
        (
            {"decode": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
            "spec.decode.resources",
            "one for each rank",
        ),
        ({"decode": {"resources": {"limits": {"memory": "4 GB"}}}}, "spec.decode.resources.limits.memory", "16Gi"),
        (
            {"decode": {"accelerator": {"type": "CPU", "products": ["A100"]}}},
            "spec.decode.accelerator.products",
            "nodeSelector",
        ),
        (
            {"decode": {"placement": {"tolerations": [{"operator": "Exists", "value": "x"}]}}},
            "spec.decode.placement.tolerations[0].value",
            "takes no value",
        ),
    ],
)
def test_a_problem_names_its_field_and_what_to_do(document: Make, spec: dict[str, Any], field: str, words: str) -> None:
    found = problems(document(**spec))
    assert words in found[field]


@pytest.mark.parametrize("name", ["1llama", "Llama", "lla.ma", "llama-", "x" * 34])
def test_names_that_no_service_could_have_are_refused(document: Make, name: str) -> None:
    assert "metadata.name" in problems(document(name=name))


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content }}",
        "{% for m in messages %}{% if m.role == 'x' %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
        "{% generation %}{{ messages[0].content }}{% endgeneration %}",
    ],
)
def test_templates_in_the_dialect_of_transformers_are_accepted(document: Make, template: str) -> None:
    model = {"source": {"path": "/a"}, "chatTemplate": {"inline": template}}
    assert validated(document(model=model)).spec.model.chat_template
