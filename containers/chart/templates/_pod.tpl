{{- /* Parts of pods that all kinds share. */ -}}

{{- define "rsm.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "rsm.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "rsm.secretVolume" -}}
# Of root, and readable by the process's group: it takes no key that others may read.
- name: secret
  secret: {secretName: {{ .root.Release.Name }}-{{ .kind }}, defaultMode: 0440}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- end }}

{{- /* The pods of one kind: root, kind, words (behind `rsm`), ports, ready and alive (commands), grace, hasDisk; and zones,
       by name the zone's label on nodes: then each zone has a StatefulSet of its own, and all of them one Service. */ -}}
{{- define "rsm.statefulset" -}}
{{- $name := printf "%s-%s" .root.Release.Name .kind -}}
{{- $values := index .root.Values .kind -}}
{{- $own := fromYaml (include (printf "rsm.settings.%s" .kind) .) -}}
{{- $file := include "rsm.toml" (dict "own" $own "settings" $values.settings) -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "rsm.labels" . | nindent 4 }}
data:
  {{ .kind }}.toml: |
    {{- $file | nindent 4 }}
---
# Names of the pods: also of those that are not ready, since they find each other before they are.
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "rsm.labels" . | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{- include "rsm.selector" . | nindent 4 }}
  ports:
    {{- range .ports }}
    - {name: {{ .name }}, port: {{ .port }}, targetPort: {{ .name }}}
    {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "rsm.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "rsm.selector" . | nindent 6 }}
{{- if .zones }}
{{- range $zone, $label := .zones }}
---
{{ include "rsm.pods" (merge (dict "zone" $zone "label" $label "name" (printf "%s-%s" $name $zone)) $) }}
{{- end }}
{{- else }}
---
{{ include "rsm.pods" (merge (dict "name" $name) .) }}
{{- end }}
{{- end }}

{{- /* One StatefulSet: what `rsm.statefulset` has, its name, and zone and label where it is one zone's. */ -}}
{{- define "rsm.pods" -}}
{{- $service := printf "%s-%s" .root.Release.Name .kind -}}
{{- $values := index .root.Values .kind -}}
{{- $own := fromYaml (include (printf "rsm.settings.%s" .kind) .) -}}
{{- $file := include "rsm.toml" (dict "own" $own "settings" $values.settings) -}}
{{- $selector := $values.nodeSelector -}}
{{- if .label }}{{ $selector = merge (dict "topology.kubernetes.io/zone" .label) $selector }}{{ end -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "rsm.labels" . | nindent 4 }}
spec:
  serviceName: {{ $service }}
  replicas: {{ $values.replicas }}
  # All at once: the first server of ZooKeeper is not ready before the second one runs.
  podManagementPolicy: Parallel
  updateStrategy: {type: RollingUpdate}
  minReadySeconds: 5
  ordinals: {start: 1}
  selector:
    matchLabels: {{- include "rsm.ownSelector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "rsm.labels" . | nindent 8 }}
        {{- if .zone }}
        rsm-spark/zone: {{ .zone | quote }}
        {{- end }}
      annotations:
        # Pods are replaced when their file changes.
        rsm-spark/settings: {{ sha256sum $file }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .grace }}
      securityContext: {{- include "rsm.podSecurity" . | nindent 8 }}
      {{- with .root.Values.image.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $selector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- if eq .root.Values.antiAffinity "required" }}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels: {{- include "rsm.selector" . | nindent 18 }}
      {{- else if eq .root.Values.antiAffinity "preferred" }}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels: {{- include "rsm.selector" . | nindent 20 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "rsm.selector" . | nindent 14 }}
      containers:
        - name: {{ .kind }}
          image: {{ include "rsm.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{ toJson .words }}
          env: {{- include "rsm.variables" . | nindent 12 }}
          ports:
            {{- range .ports }}
            - {name: {{ .name }}, containerPort: {{ .port }}}
            {{- end }}
          startupProbe:
            exec: {command: {{ toJson .ready }}}
            periodSeconds: 5
            timeoutSeconds: 10
            failureThreshold: {{ max 1 (div (int .root.Values.startupSeconds) 5) }}
          readinessProbe:
            exec: {command: {{ toJson .ready }}}
            periodSeconds: 10
            timeoutSeconds: 10
            failureThreshold: 2
          livenessProbe:
            {{- toYaml .alive | nindent 12 }}
            periodSeconds: 15
            timeoutSeconds: 10
            failureThreshold: 4
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext: {{- include "rsm.containerSecurity" . | nindent 12 }}
          volumeMounts:
            - {name: settings, mountPath: /etc/rsm-spark/settings, readOnly: true}
            - {name: secret, mountPath: /etc/rsm-spark/secret, readOnly: true}
            - {name: state, mountPath: /var/lib/rsm-spark}
            - {name: tmp, mountPath: /tmp}
      volumes:
        - name: settings
          configMap: {name: {{ $service }}}
        {{- include "rsm.secretVolume" . | nindent 8 }}
        {{- if not .hasDisk }}
        - name: state
          emptyDir: {sizeLimit: 1Gi}
        {{- end }}
  {{- if .hasDisk }}
  volumeClaimTemplates:
    - apiVersion: v1
      kind: PersistentVolumeClaim
      metadata:
        name: state
        labels: {{- include "rsm.ownSelector" . | nindent 10 }}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with $values.storage.class }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ $values.storage.size }}}}
  {{- end }}
{{- end }}

{{- /* A service of one kind's ready pods, for who comes from outside. */ -}}
{{- define "rsm.apiService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .root.Release.Name }}-{{ .kind }}-api
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "rsm.labels" . | nindent 4 }}
spec:
  selector: {{- include "rsm.selector" . | nindent 4 }}
  ports:
    - {name: https, port: 443, targetPort: http}
{{- end }}
