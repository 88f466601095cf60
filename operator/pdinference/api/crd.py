"""The CustomResourceDefinitions, generated from the pydantic models.

Kubernetes accepts only structural schemas: no `$ref`, no `title`, no `anyOf` for optional members, no
`additionalProperties: false`, no numeric `exclusiveMinimum`; maps are `additionalProperties`. Defaults of nested
objects are complete, because the API server validates a default before it applies the defaults of its members.
tests/integration/test_crd.py applies the CRDs to the real API server.
"""

from typing import Any

from pydantic import BaseModel

from pdinference.api import names
from pdinference.api.names import GROUP, VERSION
from pdinference.api.v1alpha1.base import ApiModel, Rule, models_in
from pdinference.api.v1alpha1.batch import BATCH_NAME_RULE, BatchSpec, BatchStatus
from pdinference.api.v1alpha1.resource import NAME_RULE, Spec
from pdinference.api.v1alpha1.scaler import ScalerSpec, ScalerStatus
from pdinference.api.v1alpha1.status import Status

Schema = dict[str, Any]

_KEPT_KEYWORDS = frozenset(
    {"type", "format", "description", "default", "enum", "minLength", "maxLength", "minimum", "maximum"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "required", "anyOf", "pattern"}
)


def definitions() -> dict[str, Schema]:
    """Every CRD by its name, ready for `kubectl apply`."""
    crds = (custom_resource_definition(), batch_definition(), scaler_definition())
    return {crd["metadata"]["name"]: crd for crd in crds}


def custom_resource_definition() -> Schema:
    """The CRD of `PDInference`."""
    return _definition(
        named=_named(names.KIND, names.PLURAL, names.SINGULAR, names.SHORT_NAME, categories=["all"]),
        subresources={
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.decode.replicas",
                "statusReplicasPath": ".status.roles.decode.replicas",
                "labelSelectorPath": ".status.roles.decode.selector",
            },
        },
        columns=_printer_columns(),
        schema=_resource_schema(
            "A large language model served by vLLM with separate prefill (P) and decode (D) pods behind one address.",
            Spec,
            Status,
            NAME_RULE,
        ),
    )


def batch_definition() -> Schema:
    """The CRD of `PDBatch`."""
    return _definition(
        named=_named(
            names.BATCH_KIND, names.BATCH_PLURAL, names.BATCH_SINGULAR, names.BATCH_SHORT_NAME, categories=["all"]
        ),
        subresources={"status": {}},
        columns=_batch_printer_columns(),
        schema=_resource_schema(
            "Sends the requests of a file to a PDInference and writes the answers to a file.",
            BatchSpec,
            BatchStatus,
            BATCH_NAME_RULE,
        ),
    )


def scaler_definition() -> Schema:
    """The CRD of `PDScaler`."""
    return _definition(
        named=_named(names.SCALER_KIND, names.SCALER_PLURAL, names.SCALER_SINGULAR, names.SCALER_SHORT_NAME),
        subresources={
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        columns=_scaler_printer_columns(),
        schema=_resource_schema(
            "The scale target of one autoscaled role of a PDInference. The operator creates it; a "
            "HorizontalPodAutoscaler, KEDA or `kubectl scale` writes spec.replicas.",
            ScalerSpec,
            ScalerStatus,
        ),
    )


def _named(kind: str, plural: str, singular: str, short_name: str, **more: list[str]) -> Schema:
    """The names of a kind, as a CRD has them."""
    return {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": singular,
        "shortNames": [short_name],
        **more,
    }


def _definition(*, named: Schema, subresources: Schema, columns: list[Schema], schema: Schema) -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{named['plural']}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": named,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _printer_columns() -> list[Schema]:
    return [
        _column("Ready", '.status.conditions[?(@.type=="Ready")].status', "Status of the condition Ready."),
        _column("Parameter", ".status.roles.parameter.summary", "P pods: ready/desired."),
        _column("Decode", ".status.roles.decode.summary", "D pods: ready/desired."),
        _column(
            "Rollout",
            '.status.conditions[?(@.type=="Progressing")].reason',
            "Whether the spec is rolled out, or what keeps it.",
        ),
        _column("URL", ".status.url", "Base URL for clients inside the cluster."),
        _column("P-Scaling", ".status.roles.parameter.scaling", "P: load per pod/target, range of pods.", priority=1),
        _column("D-Scaling", ".status.roles.decode.scaling", "D: load per pod/target, range of pods.", priority=1),
        _column("KV", '.status.conditions[?(@.type=="KVTransfer")].reason', "KV transfer from P to D.", priority=1),
        _column(
            "Objectives",
            '.status.conditions[?(@.type=="ObjectivesMet")].reason',
            "Whether requests keep spec.objectives.",
            priority=1,
        ),
        _column(
            "Status",
            '.status.conditions[?(@.type=="Ready")].message',
            "Message of the condition Ready.",
            priority=1,
        ),
        _AGE,
    ]


def _batch_printer_columns() -> list[Schema]:
    return [
        _column("Status", ".status.phase", "Waiting, Pending, Running, Suspended, Complete or Failed."),
        _column("Done", ".status.progress", "Completed and failed requests/all requests."),
        _column("Failed", ".status.failed", "Failed requests.", type="integer"),
        _AGE,
        _column(
            "Message",
            '.status.conditions[?(@.type=="Running")].message',
            "Message of the condition Running.",
            priority=1,
        ),
    ]


def _scaler_printer_columns() -> list[Schema]:
    return [
        _column("Recommended", ".spec.replicas", "Recommended replica count.", type="integer"),
        _column("Replicas", ".status.replicas", "Pods of the serving revision.", type="integer"),
        _column(
            "Limited",
            '.status.conditions[?(@.type=="Limited")].reason',
            "The limit of the allocated replica count.",
        ),
        _AGE,
        _column(
            "Message",
            '.status.conditions[?(@.type=="Limited")].message',
            "Message of the condition Limited.",
            priority=1,
        ),
    ]


def _column(name: str, path: str, description: str, **more: Any) -> Schema:
    return {"name": name, "type": "string", "jsonPath": path, "description": description, **more}


_AGE = _column("Age", ".metadata.creationTimestamp", "Time since creation.", type="date")


def _resource_schema(description: str, spec: type[BaseModel], status: type[BaseModel], *rules: Rule) -> Schema:
    schema: Schema = {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema."},
            "kind": {"type": "string", "description": "Kind of resource."},
            "metadata": {"type": "object"},
            "spec": model_schema(spec),
            "status": _status_schema(status),
        },
    }
    return {**schema, "x-kubernetes-validations": [_validation(rule) for rule in rules]} if rules else schema


def _status_schema(status: type[BaseModel]) -> Schema:
    """Schema of `status`. Its default keeps a new resource from looking reconciled to clients such as Argo CD."""
    schema = model_schema(status)
    return {**schema, "default": {"observedGeneration": 0}} if "observed_generation" in status.model_fields else schema


def model_schema(model: type[BaseModel]) -> Schema:
    """The structural schema of a model."""
    generated = model.model_json_schema(by_alias=True, mode="validation")
    models = {model.__name__: model, **_models_within(model)}
    return _structural(generated, generated.get("$defs", {}), models)


def _models_within(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """All models that the fields of `model` use, by their name in pydantic's references."""
    found: dict[str, type[BaseModel]] = {}
    pending = [model]
    while pending:
        for field in pending.pop().model_fields.values():
            new = [each for each in models_in(field.annotation) if each.__name__ not in found]
            found |= {each.__name__: each for each in new}
            pending += new
    return found


def _structural(schema: Schema, definitions: dict[str, Schema], models: dict[str, type[BaseModel]]) -> Schema:
    """Convert one node of pydantic's JSON schema to a structural schema; `definitions` resolves its references."""
    schema = _without_null(schema)
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        referrer = {key: value for key, value in schema.items() if key != "$ref"}
        return _structural({"title": name, **definitions[name], **referrer}, definitions, models)
    if "const" in schema:
        schema = {**schema, "enum": [schema["const"]]}

    result = {key: value for key, value in schema.items() if key in _KEPT_KEYWORDS or key.startswith("x-kubernetes-")}
    if result.get("default", ...) is None:
        del result["default"]
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if "properties" in schema:
        result["properties"] = {
            name: _structural(member, definitions, models) for name, member in schema["properties"].items()
        }
        _add_model_facts(result, models.get(schema.get("title", "")))
    if "items" in schema:
        result["items"] = _structural(schema["items"], definitions, models)
    if isinstance(values := schema.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(values, definitions, models)
    if "propertyNames" in schema:
        result["x-kubernetes-validations"] = _key_validations(schema["propertyNames"])
    return result


def _key_validations(key_schema: Schema) -> list[Schema]:
    """Constraints on the keys of a map, as rules of the map; structural schemas have no `propertyNames`."""
    fits = f"key.size() <= {key_schema['maxLength']}"
    return [
        {"rule": f"self.all(key, {fits} && {rule['rule'].replace('self', 'key', 1)})", "message": rule["message"]}
        for rule in key_schema["x-kubernetes-validations"]
    ]


def _without_null(schema: Schema) -> Schema:
    """Unwrap `anyOf: [X, null]`, pydantic's form of an optional member."""
    alternatives = schema.get("anyOf")
    if alternatives is None or {"type": "null"} not in alternatives:
        return schema
    (alternative,) = (a for a in alternatives if a != {"type": "null"})
    outer = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**alternative, **outer}


def _add_model_facts(result: Schema, model: type[BaseModel] | None) -> None:
    """Add CEL rules and the defaults of nested objects, which pydantic's JSON schema lacks."""
    if model is None:
        return
    for field in model.model_fields.values():
        default = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(default, BaseModel):
            result["properties"][field.alias or ""]["default"] = _default(default)
    if issubclass(model, ApiModel) and model.rules:
        result["x-kubernetes-validations"] = [_validation(rule) for rule in model.rules]


def _default(instance: BaseModel) -> Schema:
    """The default of an object, without empty maps and lists."""
    values = {field.alias or name: getattr(instance, name) for name, field in type(instance).model_fields.items()}
    return {
        name: _default(value) if isinstance(value, BaseModel) else value
        for name, value in values.items()
        if isinstance(value, BaseModel) or value not in (None, {}, [])
    }


def _validation(rule: Rule) -> Schema:
    blame = {"fieldPath": f".{rule.field}"} if rule.field else {}
    return {"rule": rule.cel, "message": rule.message, **blame}
