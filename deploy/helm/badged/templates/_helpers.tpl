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

{{/* The database of what runs as the owner of the schema. */}}
{{- define "badged.ownerURL" -}}
{{- if .Values.ownerUrl -}}
{{- include "badged.secret" (list . "owner-url" false) | replace "BADGED_OWNER_URL" (ternary "BADGED_SHARDS" "BADGED_DATABASE_URL" .Values.shards) -}}
{{- else -}}
{{- include "badged.secret" (list . (ternary "shards" "database-url" .Values.shards) false) -}}
{{- end -}}
{{- end }}

{{/* The folders of files of all pods, as "mount:Secret", and how they are mounted. */}}
{{- define "badged.folders" -}}
{{- $all := list -}}
{{- range $name, $secret := dict "passwords" .Values.passwordsSecret "files" .Values.filesSecret "roots" .Values.rootsSecret -}}
{{- if $secret }}{{ $all = append $all (printf "%s:%s" $name $secret) }}{{ end -}}
{{- end -}}
{{- join "," $all -}}
{{- end }}

{{- define "badged.mounts" -}}
{{- range compact (splitList "," (include "badged.folders" .)) }}
- {name: {{ splitList ":" . | first }}, mountPath: /etc/badged/{{ splitList ":" . | first }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "badged.volumes" -}}
{{- range compact (splitList "," (include "badged.folders" .)) }}
- name: {{ splitList ":" . | first }}
  secret: {secretName: {{ splitList ":" . | last }}}
{{- end }}
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
