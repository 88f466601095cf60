{{/* Of both webhook configurations. */}}
{{- define "pdinference-operator.webhookMetadata" -}}
name: {{ include "pdinference-operator.webhookName" . | quote }}
labels:
  {{- include "pdinference-operator.labels" . | nindent 2 }}
{{- if .Values.webhook.certManager.enabled }}
annotations:
  cert-manager.io/inject-ca-from: {{ printf "%s/%s" .Release.Namespace (include "pdinference-operator.tlsName" .) | quote }}
{{- end }}
{{- end -}}

{{/*
What the two have in common; takes a list of the root and a path. The operator adds `rules` (PDInferences and PDBatches that
are created or updated) when it can answer for the first time, and the CA bundle; neither is here, so that no upgrade takes them away.
So the first resources may come before the operator runs, for example out of the same chart.
*/}}
{{- define "pdinference-operator.webhook" -}}
{{- $root := index . 0 -}}
name: validate.pdinference.io
sideEffects: None
admissionReviewVersions: [v1]
matchPolicy: Equivalent
timeoutSeconds: {{ int $root.Values.webhook.timeoutSeconds }}
# Labels, finalizers and deletion need no operator. Nor does scaling: the bounds of replicas are in the schema.
matchConditions:
  - name: the-spec-changes
    expression: >-
      request.operation == 'CREATE' ||
      (!has(object.metadata.deletionTimestamp) &&
      (!has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec))
{{- with $root.Values.watchNamespaces }}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: In
      values:
        {{- toYaml . | nindent 8 }}
{{- end }}
clientConfig:
  service:
    name: {{ include "pdinference-operator.tlsName" $root | quote }}
    namespace: {{ $root.Release.Namespace | quote }}
    path: {{ index . 1 | quote }}
    port: 443
{{- end -}}
