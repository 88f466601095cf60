{{/*
The start of each policy; takes a list of the root and the suffix of its name. The policy applies only to requests of the
operator's service account. If it cannot be evaluated, the request is rejected.
*/}}
{{- define "pdinference-operator.admissionPolicy" -}}
{{- $root := index . 0 -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ printf "%s-%s" (include "pdinference-operator.webhookName" $root) (index . 1) | quote }}
  labels:
    {{- include "pdinference-operator.labels" $root | nindent 4 }}
spec:
  policyName: {{ printf "%s-%s" (include "pdinference-operator.webhookName" $root) (index . 1) | quote }}
  validationActions: [Deny]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ printf "%s-%s" (include "pdinference-operator.webhookName" $root) (index . 1) | quote }}
  labels:
    {{- include "pdinference-operator.labels" $root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConditions:
    - name: by-the-operator
      expression: request.userInfo.username == {{ printf "system:serviceaccount:%s:%s" $root.Release.Namespace (include "pdinference-operator.serviceAccountName" $root) | quote }}
{{- end -}}

{{/* The resourceRules of a policy for all kinds of children; takes a list of operations. */}}
{{- define "pdinference-operator.childKinds" -}}
{{- $operations := toJson . -}}
- {apiGroups: [""], apiVersions: ["*"], resources: [services, serviceaccounts, configmaps], operations: {{ $operations }}}
- {apiGroups: [apps], apiVersions: ["*"], resources: [deployments, statefulsets, controllerrevisions], operations: {{ $operations }}}
- {apiGroups: [resource.k8s.io], apiVersions: ["*"], resources: [resourceclaimtemplates], operations: {{ $operations }}}
- {apiGroups: [batch], apiVersions: ["*"], resources: [jobs], operations: {{ $operations }}}
- {apiGroups: [pdinference.io], apiVersions: ["*"], resources: [pdscalers], operations: {{ $operations }}}
- {apiGroups: [autoscaling], apiVersions: ["*"], resources: [horizontalpodautoscalers], operations: {{ $operations }}}
- {apiGroups: [keda.sh], apiVersions: ["*"], resources: [scaledobjects], operations: {{ $operations }}}
- {apiGroups: [policy], apiVersions: ["*"], resources: [poddisruptionbudgets], operations: {{ $operations }}}
- {apiGroups: [networking.k8s.io], apiVersions: ["*"], resources: [networkpolicies], operations: {{ $operations }}}
- {apiGroups: [gateway.networking.k8s.io], apiVersions: ["*"], resources: [httproutes], operations: {{ $operations }}}
- {apiGroups: [rbac.authorization.k8s.io], apiVersions: ["*"], resources: [roles, rolebindings], operations: {{ $operations }}}
{{- end -}}

{{/* A CEL list of strings. */}}
{{- define "pdinference-operator.celList" -}}
[{{ range $index, $text := . }}{{ if $index }}, {{ end }}{{ $text | squote }}{{ end }}]
{{- end -}}

{{/* Whether PDInferences in the release's own namespace are served. */}}
{{- define "pdinference-operator.servesOwnNamespace" -}}
{{- if or .Values.admissionPolicy.ownNamespace (has .Release.Namespace .Values.watchNamespaces) }}true{{ end -}}
{{- end -}}

{{/* A CEL condition on `path`: whether pods in the namespace of the request may mount this host path. */}}
{{- define "pdinference-operator.celAllowedPath" -}}
{{- $conditions := list -}}
{{- range .Values.allowedHostPaths -}}
{{- $path := trimSuffix "/" .path -}}
{{- $condition := printf "path == %s" (squote $path) -}}
{{- if ne .readOnly false -}}{{/* for a writable host path, only the folder itself */}}
{{- $condition = printf "%s || path.startsWith(%s)" $condition (printf "%s/" $path | squote) -}}
{{- end -}}
{{- if .namespaces -}}
{{- $condition = printf "request.namespace in %s && (%s)" (include "pdinference-operator.celList" .namespaces) $condition -}}
{{- end -}}
{{- $conditions = append $conditions (printf "(%s)" $condition) -}}
{{- end -}}
{{- if $conditions -}}
!path.contains('/../') && !path.endsWith('/..') && ({{ join " || " $conditions }})
{{- else -}}
false
{{- end -}}
{{- end -}}
