{{/* Metadata of both webhook configurations. */}}
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
The common part of both webhooks; takes a list of the root and a path. Once the operator can serve calls, it adds `rules`
(creation and update of PDInferences and PDBatches) and the CA bundle. Neither is set here, so an upgrade does not remove them.
Resources can therefore be created before the operator runs, for example by the same chart.
*/}}
{{- define "pdinference-operator.webhook" -}}
{{- $root := index . 0 -}}
name: validate.pdinference.io
sideEffects: None
admissionReviewVersions: [v1]
matchPolicy: Equivalent
timeoutSeconds: {{ int $root.Values.webhook.timeoutSeconds }}
# Changes of labels and finalizers, deletion and scaling do not call the webhook. The schema limits replicas.
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
