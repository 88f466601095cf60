{{/* The operator's rules in the namespaces that it serves, for a ClusterRole or for Roles. */}}
{{- define "pdinference-operator.rules" -}}
- apiGroups: [pdinference.io]
  resources: [pdinferences, pdbatches]
  verbs: [list, watch]
- apiGroups: [pdinference.io]
  resources: [pdinferences/status, pdbatches/status, pdscalers/status]
  verbs: [patch]
# Required for blockOwnerDeletion in owner references on clusters with the admission plug-in
# OwnerReferencesPermissionEnforcement, such as OpenShift.
- apiGroups: [pdinference.io]
  resources: [pdinferences/finalizers, pdbatches/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# Restarts of pods whose KV transfer is proven broken (transfer.repair). Unlike a deletion, an eviction respects the
# PodDisruptionBudget.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
# Children. Server-side apply needs patch, and create for new objects.
- apiGroups: [""]
  resources: [services, serviceaccounts, configmaps]
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
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: {{ include "pdinference-operator.childVerbs" . }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- define "pdinference-operator.childVerbs" -}}
[get, list, watch, create, patch, delete]
{{- end -}}
