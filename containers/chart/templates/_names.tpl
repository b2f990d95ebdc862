{{- /* Names and labels. `kind` is one of zookeeper, bookie, store, broker, gateway, console, operator. */ -}}

{{- define "rsm.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "rsm.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .kind }}
{{- end }}

{{- /* What tells the pods of one StatefulSet from those of another one of its kind: the zone. */ -}}
{{- define "rsm.ownSelector" -}}
{{ include "rsm.selector" . }}
{{- if .zone }}
rsm-spark/zone: {{ .zone | quote }}
{{- end }}
{{- end }}

{{- define "rsm.labels" -}}
{{ include "rsm.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "rsm.metadataUri" -}}
{{- $root := . -}}
{{- $servers := list -}}
{{- range $number := untilStep 1 (int (add1 .Values.zookeeper.replicas)) 1 -}}
{{- $servers = append $servers (printf "%s-zookeeper-%d.%s-zookeeper.%s.svc:2281" $root.Release.Name $number $root.Release.Name $root.Release.Namespace) -}}
{{- end -}}
zk+hierarchical://{{ join ";" $servers }}/ledgers
{{- end }}

{{- define "rsm.zookeeperServers" -}}
{{- $root := . -}}
{{- $servers := list -}}
{{- range $number := untilStep 1 (int (add1 .Values.zookeeper.replicas)) 1 -}}
{{- $servers = append $servers (printf "%d=%s-zookeeper-%d.%s-zookeeper.%s.svc" $number $root.Release.Name $number $root.Release.Name $root.Release.Namespace) -}}
{{- end -}}
{{ join "," $servers }}
{{- end }}

{{- /* A file of settings: those of the chart, and over them those of the values. */ -}}
{{- define "rsm.toml" -}}
{{- range $key, $value := merge (deepCopy .settings) .own }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
