{{- /* The Secret with the server's certificate and key. */ -}}
{{- define "paddock.tlsSecret" -}}
{{- if eq .Values.dispatch.tls.mode "secret" -}}
{{ required "dispatch.tls.secretName is empty: name a Secret with tls.crt and tls.key, or choose another dispatch.tls.mode." .Values.dispatch.tls.secretName }}
{{- else -}}
{{ include "paddock.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{- /* The ConfigMap by which Pods verify the server. No public authority issues certificates for a Service's name. */ -}}
{{- define "paddock.serverCa" -}}
{{- $mode := .Values.dispatch.tls.mode -}}
{{- if eq $mode "generated" -}}
{{- if .Values.runners.serverCaConfigMap }}{{ fail "runners.serverCaConfigMap is set, and with dispatch.tls.mode `generated` the chart makes that ConfigMap: unset it, or choose `secret`." }}{{ end -}}
{{ include "paddock.fullname" . }}-server-ca
{{- else if .Values.runners.serverCaConfigMap -}}
{{ .Values.runners.serverCaConfigMap }}
{{- else if and (ne $mode "none") (not .Values.runners.serverUrl) -}}
{{ fail (printf "runners.serverCaConfigMap is empty: with dispatch.tls.mode `%s` Pods verify the server by the authority in that ConfigMap (docs/install.md#tls-for-dispatch)." $mode) }}
{{- end -}}
{{- end -}}

{{- /* What Pods may call the server by: {dns: […], ips: […]}. */ -}}
{{- define "paddock.tlsNames" -}}
{{- $service := printf "%s.%s" (include "paddock.fullname" .) .Release.Namespace -}}
{{- $names := list (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) $service -}}
{{- range list .Values.runners.serverUrl .Values.runners.vitalsUrl -}}
{{- if . -}}
{{- if not (hasPrefix "https://" .) }}{{ fail (printf "%s is not https, and dispatch.tls.mode is not `none`: write https:// in runners.serverUrl and runners.vitalsUrl." .) }}{{ end -}}
{{- $names = append $names (urlParse .).hostname -}}
{{- end -}}
{{- end -}}
{{- $dns := list -}}
{{- $ips := list -}}
{{- range concat $names .Values.dispatch.tls.names | uniq -}}
{{- if or (contains ":" .) (regexMatch "^[0-9.]+$" .) }}{{ $ips = append $ips . }}{{ else }}{{ $dns = append $dns . }}{{ end -}}
{{- end -}}
{{- dict "dns" $dns "ips" $ips | toJson -}}
{{- end -}}

{{- /* What the cluster has: {visible: …, secret: …}. Without a cluster, as in `helm template`, nothing is visible. */ -}}
{{- define "paddock.tlsFound" -}}
{{- $secret := lookup "v1" "Secret" .Release.Namespace (include "paddock.tlsSecret" .) -}}
{{- dict "visible" (not (empty (lookup "v1" "Namespace" "" "default"))) "secret" $secret | toJson -}}
{{- end -}}

{{- /* {crt: …, key: …, ca: …}, in base64: those of the cluster, if there are any for these names. The authority signs this one
certificate, and its key is kept nowhere. */ -}}
{{- define "paddock.tlsGenerated" -}}
{{- $found := include "paddock.tlsFound" . | fromJson -}}
{{- if not $found.visible -}}
{{- fail "dispatch.tls.mode `generated` needs to see the cluster, to keep the certificate that is there: `helm template`, Argo CD and --dry-run=client do not, and would make another authority each time. Use `helm install`, `helm upgrade` or --dry-run=server, or choose `secret` or `certManager`." -}}
{{- end -}}
{{- $data := ($found.secret).data | default dict -}}
{{- $namedFor := get ((($found.secret).metadata).annotations | default dict) "paddock.dev/names" -}}
{{- if and (get $data "tls.crt") (get $data "tls.key") (get $data "ca.crt") (eq $namedFor (include "paddock.tlsNames" .)) -}}
{{- dict "crt" (get $data "tls.crt") "key" (get $data "tls.key") "ca" (get $data "ca.crt") | toJson -}}
{{- else -}}
{{- $names := include "paddock.tlsNames" . | fromJson -}}
{{- $ca := genCAWithKey (printf "%s dispatch" (include "paddock.fullname" .)) 3650 (genPrivateKey "ecdsa") -}}
{{- $made := genSignedCertWithKey (include "paddock.fullname" .) $names.ips $names.dns 3650 $ca (genPrivateKey "ecdsa") -}}
{{- dict "crt" ($made.Cert | b64enc) "key" ($made.Key | b64enc) "ca" ($ca.Cert | b64enc) | toJson -}}
{{- end -}}
{{- end -}}
