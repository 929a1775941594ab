{{- define "topicwright.labels" -}}
{app.kubernetes.io/name: topicwright, app.kubernetes.io/component: {{ . }}}
{{- end -}}

{{- define "topicwright.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: topicwright-{{ . }}
  labels: {{ include "topicwright.labels" . }}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {{ include "topicwright.labels" . }}}
{{- end -}}

{{/* A pod of one process. `.args` and `.ports` are of its container; `.stored` has its folder on a volume claim. */}}
{{- define "topicwright.pod" -}}
metadata:
  labels: {{ include "topicwright.labels" .component }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
    fsGroup: 1000
    seccompProfile: {type: RuntimeDefault}
  terminationGracePeriodSeconds: 30
  {{- if ne .component "serve" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector: {matchLabels: {{ include "topicwright.labels" .component }}}
  {{- end }}
  containers:
    - name: topicwright
      image: {{ .values.image }}
      args: {{- toYaml .args | nindent 8 }}
      ports:
        {{- range $name, $port := .ports }}
        - {name: {{ $name }}, containerPort: {{ $port }}}
        {{- end }}
      resources: {{- toYaml .values.resources | nindent 8 }}
      env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        {{- if eq .component "voter" }}
        - {name: POD_INDEX, valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}}
        {{- end }}
      # The first start reads the whole log. Later the probe restarts a process whose event loop hangs.
      startupProbe: {httpGet: {path: /health/live, port: http}, periodSeconds: 2, failureThreshold: 900}
      livenessProbe: {httpGet: {path: /health/live, port: http}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
      readinessProbe: {httpGet: {path: /health/ready, port: http}, periodSeconds: 5, timeoutSeconds: 2}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: settings, mountPath: /etc/topicwright, readOnly: true}
        - {name: users, mountPath: /etc/topicwright-users, readOnly: true}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - {name: settings, configMap: {name: topicwright}}
    - {name: users, secret: {secretName: {{ .values.usersSecret }}, defaultMode: 0440}}
    - {name: tmp, emptyDir: {}}
    {{- if not .stored }}
    - {name: data, emptyDir: {}}  # a cache of the log
    {{- end }}
{{- end -}}

{{- define "topicwright.claims" -}}
- metadata: {name: data}
  spec:
    accessModes: [ReadWriteOnce]
    resources: {requests: {storage: {{ .storage }}}}
{{- end -}}
