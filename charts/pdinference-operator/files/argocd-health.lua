-- Health of a PDInference, for Argo CD (docs/gitops.md).
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not seen this version yet." }
end
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
if conditions.Stalled then
  return { status = "Degraded", message = conditions.Stalled.message }
end
if conditions.Reconciling then
  return { status = "Progressing", message = conditions.Reconciling.message }
end
local ready = conditions.Ready or { status = "Unknown", message = "The operator has not reported yet." }
if ready.status == "True" then
  return { status = "Healthy", message = ready.message }
end
if ready.reason == "ScaledToZero" then
  return { status = "Suspended", message = ready.message }
end
return { status = "Degraded", message = ready.message }
