{{- define "badged.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "badged.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "badged.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "badged.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Labels that select the pods of the release, of any role. */}}
{{- define "badged.selector" -}}
app.kubernetes.io/name: {{ include "badged.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "badged.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.tag | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "badged.selector" . }}
{{- end }}

{{- define "badged.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "badged.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "badged.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end }}

{{/* An environment variable from a key of the Secret: badged.secret (list $ "database-url" optional) */}}
{{- define "badged.secret" -}}
{{- $root := index . 0 }}{{ $key := index . 1 -}}
- name: BADGED_{{ $key | upper | replace "-" "_" }}
  valueFrom:
    secretKeyRef:
      name: {{ required "existingSecret is needed: the name of a Secret with database-url (or shards), redis-url, publisher-keys and jwt-keys" $root.Values.existingSecret }}
      key: {{ $key }}
      optional: {{ index . 2 }}
{{- end }}

{{- define "badged.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "badged.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
