"""`pdinference explain` prints the writes of the next reconcile, and writes nothing."""

import json
import re
from pathlib import Path

from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import CHILD_BY_NAME, POD, ROLE_BINDING, SERVICE_ACCOUNT
from pdinference.manifests import KedaSettings, RenderSettings
from tests.cli.explain_command import SERVICE, Command, Make, at_rest, dump, invoke, predicted
from tests.conftest import Golden
from tests.inference import scaled, sleeping
from tests.inference.budgeted import BUDGET, IMAGE
from tests.inference.model_jobs import model
from tests.inference.world import CR, ROUTER, World

KEDA = {"source": "KEDA"}
ROLE = CHILD_BY_NAME["Role"]
GOLDEN = Path(__file__).parent / "golden" / "explain"


async def test_without_a_name_the_only_resource_is_explained(document: Make, command: Command) -> None:
    world = World(document())
    named = await command.found(world)
    assert await command.found(world, name="") == named


async def test_of_a_new_resource_it_names_all_children_in_order(document: Make, command: Command) -> None:
    world = World(document())
    found = await command.found(world)
    assert (found["generation"], found["handled"], found["serving"]) == (1, 0, "")
    actions = [(step["order"], step["action"], step["kind"]) for step in found["writes"]]
    assert actions == sorted(actions, key=lambda step: step[0])
    assert (2, "create", "RoleBinding") in actions
    assert actions[-1] == (4, "record", "ControllerRevision")
    assert {step["order"] for step in found["writes"] if step["kind"] in {"Deployment", "StatefulSet"}} == {3}
    assert predicted(found) == await command.reconciled(world)


async def test_at_rest_it_says_that_there_is_nothing_to_do(document: Make, command: Command) -> None:
    world = World(document(decode=scaled.SCALED))
    revision = await at_rest(world)
    text = await command.run(world)
    assert "Nothing to do." in text
    assert f"none is under way: every router pod sends requests to revision {revision}" in text
    assert "2 by HPA" in text
    assert "Held back:" not in text
    assert await command.reconciled(world) == set()


async def test_kinds_that_may_not_be_listed_are_a_caveat(document: Make, command: Command) -> None:
    world = World(document(decode=scaled.SCALED))
    await at_rest(world)
    world.edit(decode=scaled.SCALED, engine=IMAGE)
    allowed = await command.found(world)
    for kind in (ROLE, ROLE_BINDING, POD):
        refused = ApiError(403, "Forbidden", f"{kind.plural} is forbidden")
        world.api.fail("get", kind.path("ns"), refused)
    found = await command.found(world)
    assert set(found["unknown"]) - set(allowed["unknown"]) == {
        "You may not list roles, rolebindings. They count as up to date.",
        "You may not list pods. They count as absent.",
    }
    secret = {"Role", "RoleBinding"}
    assert found["writes"] == [step for step in allowed["writes"] if step["kind"] not in secret]
    assert [step for step in found["held_back"] if "RoleBinding" in step["reason"]] == []


async def test_with_keda_the_operators_options_are_needed(document: Make, command: Command) -> None:
    url = "http://prometheus:9090"
    world = World(document(decode=scaled.SCALED, autoscaling=KEDA), RenderSettings(keda=KedaSettings(url)))
    await at_rest(world)
    found = await command.found(world, "--keda-prometheus", url)
    assert found["writes"] == []
    assert {row["by"] for row in found["roles"] if row["role"] == "decode"} == {"KEDA"}
    result = await invoke("-f", "-", "-o", "json", "--keda-prometheus", url, text=dump(world))
    assert json.loads(result.stdout)["writes"] == []


async def test_before_a_roll_out_it_names_the_new_revision(document: Make, command: Command) -> None:
    world = World(document())
    first = await at_rest(world)
    world.edit(engine=IMAGE)
    found = await command.found(world)
    second = found["target"]
    assert found["serving"] == first != second
    reasons = {step["name"]: (step["action"], step["reason"]) for step in found["writes"]}
    assert reasons[f"llama-decode-{second}"] == ("create", "it does not exist; 1 replica")
    action, reason = reasons["llama-router"]
    assert action == "apply"
    assert reason.startswith("the manifest changed: spec.template.metadata.labels.pdinference.io/revision")
    assert f"{first} -> {second}" in reason
    assert predicted(found) == await command.reconciled(world)


async def test_amid_a_roll_out_it_says_what_the_switch_waits_for(document: Make, command: Command) -> None:
    world = World(document())
    first = await at_rest(world)
    world.edit(engine=IMAGE)
    await world.reconcile()
    found = await command.found(world)
    assert found["rollout"][0] == f"under way: from revision {first} to {found['target']}"
    assert "P: 0 of 1 pods" in found["rollout"][2]
    kept = {(step["action"], step["name"]): step["reason"] for step in found["held_back"]}
    assert (
        f"revision {first} is kept: requests still reach it from router pods" in kept["keep", f"llama-decode-{first}"]
    )
    assert found["writes"] == []
    assert any("progress deadline" in line for line in found["look_again"])
    assert await command.reconciled(world) == set()


async def test_after_the_switch_it_deletes_the_old_revision(document: Make, command: Command) -> None:
    world = World(document())
    first = await at_rest(world)
    world.edit(engine=IMAGE)
    await world.reconcile()
    world.roll_out()
    found = await command.found(world)
    deleted = {step["name"]: step["reason"] for step in found["writes"] if step["action"] == "delete"}
    assert deleted == dict.fromkeys(
        (f"llama-parameter-{first}", f"llama-decode-{first}"), f"revision {first} serves no requests any more"
    )
    assert predicted(found) == await command.reconciled(world)


async def test_a_revision_that_exceeds_the_budget_is_held_back(document: Make, command: Command) -> None:
    small = {**BUDGET, "autoscaling": {"gpuBudget": 3}}
    world = World(document(**small))
    await at_rest(world)
    world.edit(**small, engine=IMAGE)
    found = await command.found(world)
    held = {step["name"]: step["reason"] for step in found["held_back"] if step["action"] == "hold"}
    assert set(held) == {f"llama-parameter-{found['target']}", f"llama-decode-{found['target']}"}
    assert all("needs 2 GPUs, 2 are in use, and spec.autoscaling.gpuBudget is 3" in reason for reason in held.values())
    assert found["gpus"] == "2 of 3 (spec.autoscaling.gpuBudget)"
    assert predicted(found) == await command.reconciled(world)


async def test_a_recommendation_is_scaled_and_its_limit_is_named(document: Make, command: Command) -> None:
    world = World(document(**BUDGET))
    revision = await at_rest(world)
    for role in ("parameter", "decode"):
        scaled.recommend(world, 6, role)
    found = await command.found(world)
    rows = {row["role"]: row for row in found["roles"]}
    assert (rows["decode"]["recommended"], rows["decode"]["by"], rows["decode"]["allocated"]) == (6, "HPA", 4)
    assert rows["decode"]["limit"].startswith("GpuBudget: 6 pods recommended, 4 allocated")
    reasons = {step["name"]: step["reason"] for step in found["writes"] if step["action"] == "scale"}
    assert reasons[f"llama-decode-{revision}"].startswith("1 -> 4 replicas: 6 pods recommended, 4 allocated")
    (reported,) = (s for s in found["writes"] if (s["action"], s["name"]) == ("report", "llama-decode"))
    assert reported["reason"] == "status: replicas 1 -> 4, Limited False/AsRecommended -> True/GpuBudget"
    assert predicted(found) == await command.reconciled(world)


async def test_asleep_nothing_is_to_do_and_requests_are_not_known(document: Make, command: Command) -> None:
    world = World(document(parameter=sleeping.NODES, decode=sleeping.SCALED, autoscaling=sleeping.SLEEPY))
    await sleeping.asleep(world)
    await world.reconcile()
    found = await command.found(world)
    assert found["writes"] == []
    assert any("the resource counts as asleep" in line for line in found["unknown"])
    assert found["roles"][0]["limit"] == "Asleep: The role has no pods until the next request."
    for role in ("parameter", "decode"):
        scaled.recommend(world, 5, role)
    found = await command.found(world)
    reasons = [step["reason"] for step in found["writes"] if step["action"] == "scale"]
    assert reasons == ["recommended count 5 -> 2: the resource is asleep, and wakes with minReplicas"] * 2
    assert predicted(found) == await command.reconciled(world)


async def test_with_an_invalid_spec_it_explains_the_last_valid_one(document: Make, command: Command) -> None:
    world = World(document())
    revision = await at_rest(world)
    world.edit(engine={"args": {"no-such-option": 1}})
    del world.api.objects[ROUTER]
    world.sync()
    found = await command.found(world)
    assert "so the last valid spec stays in effect. Correct it: spec.engine.args" in found["problem"]
    assert found["target"] == revision
    assert [(step["action"], step["kind"]) for step in found["writes"]] == [("create", "Deployment")]
    assert predicted(found) == await command.reconciled(world)


async def test_without_any_valid_spec_it_says_that_nothing_is_done(document: Make, command: Command) -> None:
    text = await command.run(World(document(engine={"args": {"no-such-option": 1}})))
    assert "running pods are left alone. Correct it: spec.engine.args" in " ".join(text.split())
    assert "Nothing to do." in text


async def test_a_foreign_object_is_named_with_what_waits_for_it(document: Make, command: Command) -> None:
    world = World(document())
    account = SERVICE_ACCOUNT.path("ns", "llama-router")
    for path in (SERVICE, account):  # without the operator's label, so in none of its lists
        world.api.put(path, {"metadata": {"name": path.rsplit("/", 1)[1], "namespace": "ns"}})
    found = await command.found(world)
    held = {(step["kind"], step["name"]): step["reason"] for step in found["held_back"]}
    assert "does not belong to this PDInference" in held["Service", "llama"]
    assert held["RoleBinding", "llama-router"] == "it is applied only after ServiceAccount llama-router"
    assert ("Deployment", "llama-router") in held
    assert any("while an object is in the place of another" in line for line in found["look_again"])
    assert predicted(found) == await command.reconciled(world)


async def test_a_changed_live_object_is_named_with_its_field(document: Make, command: Command) -> None:
    world = World(document())
    await at_rest(world)
    body = world.api.objects[ROUTER]
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "other:\x1b[31m1"
    world.api.put(ROUTER, body)
    world.sync()
    found = await command.found(world)
    (step,) = found["writes"]
    assert (step["action"], step["name"]) == ("apply", "llama-router")
    start = "the live object was changed: spec.template.spec.containers[0].image other: [31m1 -> "
    assert step["reason"].startswith(start)
    assert predicted(found) == await command.reconciled(world)


async def test_a_model_that_is_downloaded_first_holds_p_and_d_back(document: Make, command: Command) -> None:
    world = World(document(model=model()))
    await world.reconcile()
    found = await command.found(world)
    held = [step["reason"] for step in found["held_back"]]
    assert held
    assert all(reason.startswith("P and D start when the model is there.") for reason in held)
    assert found["writes"] == []
    assert await command.reconciled(world) == set()


async def test_other_settings_are_named_as_a_possible_reason(document: Make, command: Command) -> None:
    world = World(document())
    await at_rest(world)
    text = " ".join((await command.run(world, "--router-image", "mine:1")).split())
    assert "vllm/vllm-router" not in text.split("mine:1")[1]
    assert "They are those of the options (--router-image, --policy, --model-image, ...)." in text
    assert "The operator has handled this generation already." in text


async def test_a_resource_that_is_being_deleted_gets_nothing(document: Make, command: Command) -> None:
    world = World(document())
    world.api.objects[CR]["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:00Z"
    text = await command.run(world)
    assert "It is being deleted." in text
    assert "Nothing to do." in text


async def test_a_resource_that_is_missing_is_an_error(document: Make, command: Command) -> None:
    world = World(document())
    del world.api.objects[CR]
    result = await command.result(world)
    assert result.exit_code == 1
    assert "The namespace ns has no PDInference llama." in result.output


async def test_the_text_of_a_roll_out(document: Make, command: Command, golden: Golden) -> None:
    world = World(document(**BUDGET))
    first = await at_rest(world)
    scaled.recommend(world, 6)
    world.edit(**BUDGET, engine=IMAGE)
    await world.reconcile()
    scaled.recommend(world, 1)
    text = await command.run(world)
    second = (await command.found(world))["target"]
    text = text.replace(first, "aaaaaaaa").replace(second, "bbbbbbbb")
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-11-22T12:00:00Z", text)
    golden(GOLDEN / "roll-out.txt", "".join(f"{line.rstrip()}\n" for line in text.splitlines()))


async def test_a_change_of_the_mode_is_explained_by_the_roles_of_each_revision(
    document: Make, command: Command
) -> None:
    world = World(document())
    first = await at_rest(world)
    world.edit(mode="Aggregated")
    found = await command.found(world)
    second = found["target"]
    assert [(row["role"], row["revision"]) for row in found["roles"]] == [
        ("parameter", first),
        ("decode", second),
        ("decode", first),
        ("router", first),
    ]
    assert predicted(found) == await command.reconciled(world)
    text = await command.run(world)
    assert f"D: 0 of 1 pods of revision {second} are ready." in text
    assert f"P: there is no workload of revision {second}" not in text
