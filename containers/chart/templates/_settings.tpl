{{- /* What the chart says in the file of each kind, as YAML. What differs from pod to pod is in variables. */ -}}

{{- define "rsm.settings.zookeeper" -}}
data_dir: /var/lib/rsm-spark/zookeeper
bind: 0.0.0.0
port: 2281
servers: {{ include "rsm.zookeeperServers" .root | quote }}
tls_cert: /etc/rsm-spark/secret/host.pem
tls_key: /etc/rsm-spark/secret/host.key
tls_ca: /etc/rsm-spark/secret/ca.pem
any_host: true
{{- end }}

{{- define "rsm.settings.bookie" -}}
data_dir: /var/lib/rsm-spark/bookie
bind: 0.0.0.0
port: 3181
tls_cert: /etc/rsm-spark/secret/host.pem
tls_key: /etc/rsm-spark/secret/host.key
tls_ca: /etc/rsm-spark/secret/ca.pem
tls_required: true
principals: /etc/rsm-spark/secret/principals.toml
http_port: 8000
http_bind: 0.0.0.0
{{- end }}

{{- define "rsm.settings.replica" -}}
bind: 0.0.0.0
bookies: {{ .root.Values.bookies | quote }}
tls_cert: /etc/rsm-spark/secret/host.pem
tls_key: /etc/rsm-spark/secret/host.key
tls_ca: /etc/rsm-spark/secret/ca.pem
token_file: /etc/rsm-spark/secret/token
principals: /etc/rsm-spark/secret/principals.toml
log_key: /etc/rsm-spark/secret/log.key
http_bind: 0.0.0.0
{{- end }}

{{- define "rsm.settings.store" -}}
log: {{ .root.Values.log | quote }}
data_dir: /var/lib/rsm-spark/store
port: 7200
framed_port: 7201
http_port: 7210
{{ include "rsm.settings.replica" . }}
{{- end }}

{{- define "rsm.settings.broker" -}}
data_dir: /var/lib/rsm-spark/broker
port: 7300
framed_port: 7301
http_port: 7364
http_tls_cert: /etc/rsm-spark/secret/host.pem
http_tls_key: /etc/rsm-spark/secret/host.key
{{ include "rsm.settings.replica" . }}
{{- end }}

{{- define "rsm.settings.gateway" -}}
bookies: {{ .root.Values.bookies | quote }}
http_port: 7400
http_bind: 0.0.0.0
http_tls_cert: /etc/rsm-spark/secret/host.pem
http_tls_key: /etc/rsm-spark/secret/host.key
principals: /etc/rsm-spark/secret/principals.toml
log_key: /etc/rsm-spark/secret/log.key
{{- end }}

{{- define "rsm.settings.console" -}}
http_port: 8088
http_bind: 0.0.0.0
http_tls_cert: /etc/rsm-spark/secret/host.pem
http_tls_key: /etc/rsm-spark/secret/host.key
principals: /etc/rsm-spark/secret/principals.toml
data_dir: /var/lib/rsm-spark/console
{{- end }}

{{- /* Variables of a kind: the clients within the process, and what differs from pod to pod. */ -}}
{{- define "rsm.variables" -}}
{{- $own := ternary "operator" "host" (eq .kind "operator") -}}
{{- $host := printf "$(POD_NAME).%s-%s.%s.svc" .root.Release.Name .kind .root.Release.Namespace -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- if eq .kind "zookeeper" }}
- name: RSM_ZOOKEEPER__SERVER_ID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
{{- else }}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- {name: RSM_METADATA_URI, value: {{ include "rsm.metadataUri" .root | quote }}}
- {name: RSM_ZK_TLS_FILE, value: /etc/rsm-spark/secret/zookeeper-client.toml}
- {name: RSM_ZK_AUTH_FILE, value: /etc/rsm-spark/secret/zookeeper.login}
- {name: RSM_CLIENT__TLS_CA, value: /etc/rsm-spark/secret/ca.pem}
- {name: RSM_CLIENT__TLS_CERT, value: /etc/rsm-spark/secret/{{ $own }}.pem}
- {name: RSM_CLIENT__TLS_KEY, value: /etc/rsm-spark/secret/{{ $own }}.key}
{{- end }}
{{- if eq .kind "bookie" }}
- {name: RSM_BOOKIE__ADVERTISE, value: {{ $host }}}
{{- if eq .root.Values.bookie.id "pod" }}
- {name: RSM_BOOKIE__BOOKIE_ID, value: $(POD_NAME)}
{{- end }}
{{- else if or (eq .kind "store") (eq .kind "broker") }}
- {name: RSM_{{ upper .kind }}__REPLICA_ID, value: $(POD_NAME)}
- {name: RSM_{{ upper .kind }}__DOMAIN, value: $(NODE_NAME)}
- {name: RSM_{{ upper .kind }}__ADVERTISE, value: {{ $host }}}
{{- end }}
{{- if or (eq .kind "broker") (eq .kind "gateway") (eq .kind "console") }}
- {name: RSM_{{ upper .kind }}__HTTP_ADVERTISE, value: {{ $host }}}
{{- end }}
{{- if or (eq .kind "operator") (eq .kind "console") }}
- {name: RSM_STORE__TLS_CA, value: /etc/rsm-spark/secret/ca.pem}
- {name: RSM_STORE__TOKEN_FILE, value: /etc/rsm-spark/secret/token}
- {name: RSM_BROKER_TOKEN_FILE, value: /etc/rsm-spark/secret/token}
{{- end }}
{{- if eq .kind "operator" }}
- {name: RSM_BROKER_TLS_CA, value: /etc/rsm-spark/secret/ca.pem}
- {name: RSM_LOG_KEY, value: /etc/rsm-spark/secret/log.key}
{{- end }}
- {name: RSM_PROBE_CA, value: /etc/rsm-spark/secret/ca.pem}
- {name: RSM_PROBE_TOKEN_FILE, value: /etc/rsm-spark/secret/token}
- {name: RSM_PROBE_CERT, value: /etc/rsm-spark/secret/{{ $own }}.pem}
- {name: RSM_PROBE_KEY, value: /etc/rsm-spark/secret/{{ $own }}.key}
{{- end }}
