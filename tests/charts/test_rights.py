"""The operator has exactly the rights that it needs."""

from collections.abc import Callable
from itertools import product

import pytest

from pdinference.api.v1alpha1 import PDBatch, PDInference
from pdinference.cluster import kinds
from pdinference.engine.batch import ServiceAccess
from pdinference.loadmetrics.metrics_api.registration import API_SERVICE
from pdinference.manifests import RenderSettings, render
from pdinference.manifests.batch import render_batch
from pdinference.runtime.leader import LEASE_NAME
from tests.charts.helm import (
    BATCH_CONFIG_MAPS,
    EVERYTHING,
    KEDA,
    NAMESPACE,
    NAMESPACED,
    RELEASE,
    VALUE_SETS,
    HelmError,
    Object,
    Values,
    of_kind,
    only,
    rendered,
)
from tests.conftest import EXAMPLES, example_documents

CLUSTER_SCOPED = {
    "APIService",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}
ROLES = {"Role", "ClusterRole"}
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
CHILD_VERBS = ("get", "list", "watch", "create", "patch", "delete")

Right = tuple[str, str, str]
"""API group, resource, verb."""

all_value_sets = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())


def rights(role: Object) -> set[Right]:
    return {
        right
        for rule in role["rules"]
        if "resourceNames" not in rule
        for right in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


def operator_rights(values: Values | None = None) -> set[Right]:
    (role,) = [item for item in rendered(values) if item["kind"] in ROLES and item["metadata"]["name"] == RELEASE]
    return rights(role)


def own_secret(rule: Object, role: Object) -> bool:
    """Whether a rule is about one Secret of the operator's own, which its namespace's role names."""
    name = role["metadata"]["name"]
    where = (role["kind"], role["metadata"].get("namespace"))
    return where == ("Role", NAMESPACE) and [name] == rule["resourceNames"]


@all_value_sets
def test_no_role_has_wildcards_or_secrets_or_gives_itself_more(values: Values) -> None:
    for role in (item for item in rendered(values) if item["kind"] in ROLES):
        for rule in role["rules"]:
            assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]
            assert "nonResourceURLs" not in rule
            assert not {"pods/exec", "serviceaccounts/token"} & set(rule["resources"])
            assert "secrets" not in rule["resources"] or own_secret(rule, role)
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_children_are_exactly_what_may_be_created() -> None:
    created = {(group, resource) for group, resource, verb in operator_rights() if verb == "create"}
    others = {("events.k8s.io", "events"), ("", "pods/eviction")}
    assert created == {(kind.group, kind.plural) for kind in kinds.OWNED} | others


def test_config_maps_as_output_of_batches_change_no_right() -> None:
    """The operator has ConfigMaps as children. It tells a runner to write to one only where that is allowed."""
    assert operator_rights() == operator_rights(BATCH_CONFIG_MAPS)
    for values, told in (({}, False), (BATCH_CONFIG_MAPS, True)):
        (container,) = of_kind(rendered(values), "Deployment")[0]["spec"]["template"]["spec"]["containers"]
        assert ("--batch-config-maps" in container["args"]) is told


def test_a_runner_may_patch_its_output_and_do_nothing_else(batch_document: Callable[..., Object]) -> None:
    batch = PDBatch.model_validate(batch_document(output={"configMap": {"name": "answers"}}))
    (role,) = of_kind(list(render_batch(batch, ServiceAccess("http://x", "m"), RenderSettings())), "Role")
    (rule,) = role["rules"]
    assert rule == {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["answers"], "verbs": ["patch"]}
    assert ("", "configmaps", "patch") in operator_rights(BATCH_CONFIG_MAPS), "it can give only what it has"


def test_everything_watched_may_be_listed_and_watched() -> None:
    needed = {(kind.group, kind.plural, verb) for kind in kinds.WATCHED for verb in ("list", "watch")}
    assert needed <= operator_rights()


def test_a_right_to_scaled_objects_comes_with_keda_alone() -> None:
    needed = {(kinds.SCALED_OBJECT.group, kinds.SCALED_OBJECT.plural, verb) for verb in CHILD_VERBS}
    assert operator_rights(KEDA) - operator_rights() == needed
    namespaced = [
        role for role in of_kind(rendered({**NAMESPACED, **KEDA}), "Role") if role["metadata"]["name"] == RELEASE
    ]
    assert [rights(role) for role in namespaced] == [operator_rights(KEDA)] * 2


def test_the_operator_holds_what_it_gives_to_routers() -> None:
    for document in (document for path in EXAMPLES for document in example_documents(path)):
        children = render(PDInference.model_validate(document), RenderSettings()).objects
        for role in of_kind(list(children), "Role"):
            assert rights(role) <= operator_rights()


def test_with_listed_namespaces_only_the_definition_is_cluster_wide() -> None:
    objects = rendered(NAMESPACED)
    webhook = f"{RELEASE}.{NAMESPACE}"
    assert {(item["kind"], item["metadata"]["name"]) for item in objects if item["kind"] in CLUSTER_SCOPED} == {
        ("CustomResourceDefinition", "pdinferences.pdinference.io"),
        ("CustomResourceDefinition", "pdbatches.pdinference.io"),
        ("CustomResourceDefinition", "pdscalers.pdinference.io"),
        ("ValidatingWebhookConfiguration", webhook),
        ("MutatingWebhookConfiguration", webhook),
        ("ClusterRole", webhook),
        ("ClusterRoleBinding", webhook),
    }
    without = rendered({**NAMESPACED, "webhook": {"enabled": False}})
    assert [item["kind"] for item in without if item["kind"] in CLUSTER_SCOPED] == ["CustomResourceDefinition"] * 3
    for kind in ("Role", "RoleBinding"):
        places = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in of_kind(objects, kind)}
        assert places == {("models", RELEASE), ("research", RELEASE)} | {
            (NAMESPACE, f"{RELEASE}-{part}") for part in ("leader", "tls")
        }


def test_the_rights_in_a_namespace_are_those_in_the_cluster() -> None:
    role = next(role for role in of_kind(rendered(NAMESPACED), "Role") if role["metadata"]["namespace"] == "models")
    assert rights(role) == operator_rights()


@pytest.mark.parametrize("values", [{}, {**KEDA, **BATCH_CONFIG_MAPS}], ids=["default", "all-rights"])
def test_a_policy_looks_at_all_that_the_operator_may_write(values: Values) -> None:
    places = only(rendered(values), "ValidatingAdmissionPolicy", ending="-places")
    looked_at = {
        (group, resource)
        for rule in places["spec"]["matchConstraints"]["resourceRules"]
        for group, resource in product(rule["apiGroups"], rule["resources"])
    }
    written = {
        (group, resource)
        for group, resource, verb in operator_rights(values)
        if verb in WRITES and resource != "events" and ("/" not in resource or group != "pdinference.io")
    }
    assert written <= looked_at


@all_value_sets
def test_each_policy_is_bound_and_concerns_the_operator_alone(values: Values) -> None:
    objects = rendered(values)
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    bindings = of_kind(objects, "ValidatingAdmissionPolicyBinding")
    assert {p["metadata"]["name"] for p in policies} == {b["spec"]["policyName"] for b in bindings}
    for policy in policies:
        account = only(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
        (first, *_) = policy["spec"]["matchConditions"]
        assert first["expression"] == f'request.userInfo.username == "system:serviceaccount:{NAMESPACE}:{account}"'
        assert policy["spec"]["failurePolicy"] == "Fail"
    assert all(
        binding["spec"] == {"policyName": binding["metadata"]["name"], "validationActions": ["Deny"]}
        for binding in bindings
    )


def test_a_namespace_cannot_be_served_and_protected() -> None:
    with pytest.raises(HelmError, match=r"watchNamespaces names kube-system, .* admissionPolicy\.protectedNamespaces"):
        rendered({"watchNamespaces": ["models", "kube-system"]})


def test_every_binding_is_for_the_service_account() -> None:
    for values, account in (({}, RELEASE), (NAMESPACED, RELEASE), (EVERYTHING, "operator")):
        objects = rendered(values)
        for binding in of_kind(objects, "ClusterRoleBinding") + of_kind(objects, "RoleBinding"):
            assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
        (deployment,) = of_kind(objects, "Deployment")
        assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == account


def test_only_its_own_lease_is_in_reach() -> None:
    (role,) = [role for role in of_kind(rendered(), "Role") if role["metadata"]["name"] == f"{RELEASE}-leader"]
    assert role["metadata"]["namespace"] == NAMESPACE
    assert rights(role) == {("coordination.k8s.io", "leases", "create")}
    (named,) = [rule for rule in role["rules"] if "resourceNames" in rule]
    assert (named["resourceNames"], named["verbs"]) == ([LEASE_NAME], ["get", "update"])


def test_of_webhooks_and_secrets_only_its_own_are_in_reach() -> None:
    objects = rendered()
    (configuration,) = of_kind(objects, "ValidatingWebhookConfiguration")
    (early,) = of_kind(objects, "MutatingWebhookConfiguration")
    assert early["metadata"]["name"] == configuration["metadata"]["name"]
    (secret,) = of_kind(objects, "Secret")
    named = [rule for role in objects if role["kind"] in ROLES for rule in role["rules"] if "resourceNames" in rule]
    reach = {resource: (rule["resourceNames"], rule["verbs"]) for rule in named for resource in rule["resources"]}
    for kind in ("validating", "mutating"):
        found = reach.pop(f"{kind}webhookconfigurations")
        assert found == ([configuration["metadata"]["name"]], ["get", "patch"])
    assert reach.pop("secrets") == ([secret["metadata"]["name"]], ["get", "update"])
    assert reach.pop("apiservices") == ([API_SERVICE], ["get", "patch"])
    assert reach.keys() == {"leases"}


def test_people_with_the_usual_roles_may_use_the_resource() -> None:
    roles = {role["metadata"]["name"]: role for role in of_kind(rendered(), "ClusterRole")}
    view, edit = roles[f"{RELEASE}-view"], roles[f"{RELEASE}-edit"]
    assert {verb for _, _, verb in rights(view)} == {"get", "list", "watch"}
    assert "create" in {verb for _, _, verb in rights(edit)}
    for role in (view, edit):
        assert {group for group, _, _ in rights(role)} == {"pdinference.io"}
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]


def test_people_with_the_role_edit_may_scale_and_not_create_scalers() -> None:
    roles = {role["metadata"]["name"]: role for role in of_kind(rendered(), "ClusterRole")}
    writes = {(resource, verb) for _, resource, verb in rights(roles[f"{RELEASE}-edit"]) if "pdscalers" in resource}
    assert writes == {("pdscalers/scale", "update"), ("pdscalers/scale", "patch")}


def test_rights_can_be_left_to_somebody_else() -> None:
    assert not [item for item in rendered({"rbac": {"create": False}}) if item["kind"] in ROLES]
