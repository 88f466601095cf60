{{/* What the operator may do where it looks after PDInferences and PDBatches: the same rules for a ClusterRole and for Roles. */}}
{{- define "pdinference-operator.rules" -}}
- apiGroups: [pdinference.io]
  resources: [pdinferences, pdbatches]
  verbs: [list, watch]
- apiGroups: [pdinference.io]
  resources: [pdinferences/status, pdbatches/status, pdscalers/status]
  verbs: [patch]
# Children are deleted together with their owner (blockOwnerDeletion). Clusters that run the admission plug-in
# OwnerReferencesPermissionEnforcement, OpenShift among them, want this right for it.
- apiGroups: [pdinference.io]
  resources: [pdinferences/finalizers, pdbatches/finalizers]
  verbs: [update]
# Pods are only read. The router reads them too, and nobody can give away a right that he has not: hence get.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# The children. Server-side apply is a patch, and a create for what is not there yet.
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
- apiGroups: [apps]
  resources: [deployments, statefulsets, controllerrevisions]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
- apiGroups: [pdinference.io]
  resources: [pdscalers]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
{{- if .Values.autoscaling.keda.enabled }}
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
{{- end }}
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
{{- if .Values.rbac.batchConfigMaps }}
# ConfigMaps for the answers of PDBatches that ask for one: created, and passed on to the runner as the right to patch this
# one. They are neither listed nor watched.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, patch]
{{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- define "pdinference-operator.childVerbs" -}}
[get, list, watch, create, patch, delete]
{{- end -}}
