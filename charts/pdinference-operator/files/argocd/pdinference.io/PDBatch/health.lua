-- Health of a PDBatch, for Argo CD (docs/gitops-state.md).
if obj.metadata.deletionTimestamp then
  return { status = "Progressing", message = "The PDBatch is being deleted." }
end
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not seen this version yet." }
end
-- The condition Running describes every phase.
local now = { message = "The operator has not reported yet." }
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Running" then
    now = condition
  end
end
local ended = { Complete = "Healthy", Failed = "Degraded" }
if ended[status.phase] then
  return { status = ended[status.phase], message = now.message }
end
-- Waiting solves none of these.
local stuck = {
  CrashLooping = true,
  ErrImageNeverPull = true,
  ImagePullBackOff = true,
  InvalidImageName = true,
  InvalidSpec = true,
  NameConflict = true,
  NoUsableModel = true,
}
if stuck[now.reason] then
  return { status = "Degraded", message = now.message }
end
if status.phase == "Suspended" then
  return { status = "Suspended", message = now.message }
end
local done = status.progress or ""
if done ~= "" then
  done = done .. " requests. "
end
return { status = "Progressing", message = done .. now.message }
