{{- define "paddock.fullname" -}}
{{- if contains "paddock" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-paddock" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Names outside of namespaces: two releases of the same name must not share them. */ -}}
{{- define "paddock.clusterName" -}}
{{- $name := include "paddock.fullname" . -}}
{{- if eq $name .Release.Namespace -}}{{ $name }}{{- else -}}{{ printf "%s-%s" .Release.Namespace $name }}{{- end -}}
{{- end -}}

{{- define "paddock.selector" -}}
app.kubernetes.io/name: paddock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "paddock.labels" -}}
app.kubernetes.io/name: paddock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "paddock.image" -}}
{{- $repository := required "image.repository is empty: make the image and push it to a registry of yours (docs/install.md)." .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "paddock.scheme" -}}
{{ if eq .Values.dispatch.tls.mode "none" }}http{{ else }}https{{ end }}
{{- end -}}

{{- /* Where Pods ask for work, on ports that answer nothing else. */ -}}
{{- define "paddock.serverUrl" -}}
{{- .Values.runners.serverUrl | default (printf "%s://%s.%s.svc:8788" (include "paddock.scheme" .) (include "paddock.fullname" .) .Release.Namespace) -}}
{{- end -}}

{{- define "paddock.vitalsUrl" -}}
{{- if and (eq .Values.network.dispatchEgress "idle-only") (not .Values.network.vitalsEgress) -}}
{{- else if .Values.runners.vitalsUrl -}}
{{ .Values.runners.vitalsUrl }}
{{- else if not .Values.runners.serverUrl -}}
{{ include "paddock.scheme" . }}://{{ include "paddock.fullname" . }}.{{ .Release.Namespace }}.svc:8789
{{- end -}}
{{- end -}}

{{- define "paddock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "paddock.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* The settings file. What `settings` says goes before what the chart says. */ -}}
{{- define "paddock.settings" -}}
{{- $apps := list -}}
{{- range $index, $app := .Values.github.apps -}}
{{- $one := dict "app_id" (int64 $app.appId) -}}
{{- $_ := set $one "private_key_file" (printf "/etc/paddock/apps/%d/private-key.pem" $index) -}}
{{- $_ := set $one "webhook_secret_file" (printf "/etc/paddock/apps/%d/webhook-secret" $index) -}}
{{- with $app.apiUrl }}{{ $_ := set $one "api_url" . }}{{ end -}}
{{- with $app.host }}{{ $_ := set $one "host" . }}{{ end -}}
{{- with $app.pointsPerMinute }}{{ $_ := set $one "points_per_minute" (int64 .) }}{{ end -}}
{{- with $app.requestsPerHour }}{{ $_ := set $one "requests_per_hour" (int64 .) }}{{ end -}}
{{- with $app.mintsPerHour }}{{ $_ := set $one "mints_per_hour" (int64 .) }}{{ end -}}
{{- $apps = append $apps $one -}}
{{- end -}}
{{- $kube := dict "namespace" .Values.runners.namespace "service_account" (printf "%s-runner" (include "paddock.fullname" .)) "agent_image" (include "paddock.image" .) "server_url" (include "paddock.serverUrl" .) -}}
{{- with include "paddock.vitalsUrl" . }}{{ $_ := set $kube "vitals_url" . }}{{ end -}}
{{- if .Values.network.enabled }}{{ $_ := set $kube "dispatch_egress" .Values.network.dispatchEgress }}{{ end -}}
{{- with include "paddock.serverCa" . }}{{ $_ := set $kube "server_ca" . }}{{ end -}}
{{- with .Values.runners.nodeSelector }}{{ $_ := set $kube "node_selector" . }}{{ end -}}
{{- $own := dict "listen" "0.0.0.0:8787" "pods_listen" "0.0.0.0:8788" "vitals_listen" "0.0.0.0:8789" "fleet" "kube" "log_format" "json" "log_level" .Values.server.logLevel "github" (dict "apps" $apps) "kube" $kube -}}
{{- if ne .Values.dispatch.tls.mode "none" -}}
{{- $_ := set $own "pods_certificate_file" "/etc/paddock/tls/tls.crt" -}}
{{- $_ := set $own "pods_key_file" "/etc/paddock/tls/tls.key" -}}
{{- end -}}
{{- toToml (mergeOverwrite $own (deepCopy .Values.settings)) -}}
{{- end -}}

{{- /* The head of a policy for runners; for idle ones alone if `idle` is true. */ -}}
{{- define "paddock.policy" }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "paddock.fullname" .root }}-{{ .name }}
  namespace: {{ .root.Values.runners.namespace }}
  labels:
    {{- include "paddock.labels" .root | nindent 4 }}
spec:
  podSelector:
    matchExpressions:
      - {key: paddock.dev/pool, operator: Exists}
      {{- if .idle }}
      - {key: paddock.dev/owner, operator: DoesNotExist}
      {{- end }}
{{- end -}}
