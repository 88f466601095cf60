-- Health of a PDInference, for Argo CD (docs/gitops-state.md).
if obj.metadata.deletionTimestamp then
  return { status = "Progressing", message = "The PDInference is being deleted." }
end
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not seen this version yet." }
end
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local function holds(name)
  return conditions[name] ~= nil and conditions[name].status == "True"
end
if holds("Stalled") then
  return { status = "Degraded", message = conditions.Stalled.message }
end
local progressing = conditions.Progressing
if progressing ~= nil and progressing.reason == "Paused" then
  return { status = "Suspended", message = progressing.message }
end
if holds("Reconciling") then
  return { status = "Progressing", message = conditions.Reconciling.message }
end
if holds("Ready") then
  return { status = "Healthy", message = conditions.Ready.message }
end
local ready = conditions.Ready or { message = "The operator has not reported yet." }
if ready.reason == "ScaledToZero" then
  return { status = "Suspended", message = ready.message }
end
return { status = "Progressing", message = ready.message }
