{{/* Name of the application, in labels and selectors. */}}
{{- define "pdinference-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of most objects. At most 50 characters, so that the suffixes below keep it within 63. */}}
{{- define "pdinference-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "pdinference-operator.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the operator's pods. They must never change: a Deployment's selector is immutable. */}}
{{- define "pdinference-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "pdinference-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels of every object. Pods have the selector's only: a new chart version alone must not restart them. */}}
{{- define "pdinference-operator.labels" -}}
{{ include "pdinference-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: pdinference
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end -}}

{{/* Name and labels, the start of every namespaced object's metadata. */}}
{{- define "pdinference-operator.metadata" -}}
name: {{ include "pdinference-operator.fullname" . | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "pdinference-operator.labels" . | nindent 2 }}
{{- end -}}

{{- define "pdinference-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pdinference-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The operator's identity, as the subjects of a binding. */}}
{{- define "pdinference-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "pdinference-operator.serviceAccountName" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{/* Reference of an image; takes a list of the image's values and the default tag. */}}
{{- define "pdinference-operator.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Reference of a version of the operator's image; takes a list of the image's values and the root. */}}
{{- define "pdinference-operator.ownImage" -}}
{{- $image := index . 0 -}}
{{- $root := index . 1 -}}
{{- $repository := default $root.Values.image.repository $image.repository -}}
{{- include "pdinference-operator.image" (list (merge (dict "repository" $repository) $image) $root.Chart.AppVersion) -}}
{{- end -}}

{{/* Port of /healthz, /readyz and /metrics inside the pod. */}}
{{- define "pdinference-operator.port" -}}
8080
{{- end -}}

{{/* Container port of the HTTPS server for the API server. */}}
{{- define "pdinference-operator.tlsPort" -}}
8443
{{- end -}}

{{/* Name of the Service and the Secret (or Certificate) of the HTTPS server. */}}
{{- define "pdinference-operator.tlsName" -}}
{{ include "pdinference-operator.fullname" . }}-tls
{{- end -}}

{{/* The DNS name in the certificate. */}}
{{- define "pdinference-operator.tlsHost" -}}
{{ include "pdinference-operator.tlsName" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* Whether the operator serves external metrics to HPAs. Not with watchNamespaces, because an APIService is cluster-scoped. */}}
{{- define "pdinference-operator.metricsApi" -}}
{{- if and .Values.metricsApi.enabled (not .Values.watchNamespaces) }}true{{ end -}}
{{- end -}}

{{/* Whether the API server calls the operator. */}}
{{- define "pdinference-operator.tls" -}}
{{- if or .Values.webhook.enabled (include "pdinference-operator.metricsApi" .) }}true{{ end -}}
{{- end -}}

{{/* ConfigMap with the CA of the API server's client certificate; empty if no file is needed. */}}
{{- define "pdinference-operator.clientCa" -}}
{{- if and .Values.webhook.enabled .Values.webhook.clientCertificate.enabled }}{{ .Values.webhook.clientCertificate.caConfigMap }}{{ end -}}
{{- end -}}

{{/* Whether the operator reads the configuration of the front proxy that the API server publishes. */}}
{{- define "pdinference-operator.readsFrontProxy" -}}
{{- $webhook := and .Values.webhook.enabled .Values.webhook.clientCertificate.enabled (not .Values.webhook.clientCertificate.caConfigMap) -}}
{{- if or $webhook (include "pdinference-operator.metricsApi" .) }}true{{ end -}}
{{- end -}}

{{/* Cluster-scoped names contain the namespace, so that releases with the same name in two namespaces do not collide. */}}
{{- define "pdinference-operator.webhookName" -}}
{{ include "pdinference-operator.fullname" . }}.{{ .Release.Namespace }}
{{- end -}}

{{/* The installation policy in the format of the operator's option --policy. */}}
{{- define "pdinference-operator.policy" -}}
{{- merge (dict "allowedHostPaths" .Values.allowedHostPaths) .Values.policy | toYaml -}}
{{- end -}}

{{/*
Metadata of an object of `helm test`; takes a list of the root, name, namespace, order and when it is removed. Without the labels that select the
operator's pods: its Service must not find a test. After a success the account and its right are removed, after a failure at
the next test. The pod stays until then, because `helm test --logs` reads its log at the end.
*/}}
{{- define "pdinference-operator.testMetadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 | quote }}
namespace: {{ index . 2 | quote }}
labels:
  app.kubernetes.io/name: {{ index . 1 | quote }}
  app.kubernetes.io/component: test
  app.kubernetes.io/part-of: pdinference
  app.kubernetes.io/managed-by: {{ $root.Release.Service | quote }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ index . 3 | quote }}
  helm.sh/hook-delete-policy: {{ index . 4 }}
{{- end -}}
