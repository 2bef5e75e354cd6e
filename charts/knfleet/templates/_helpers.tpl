{{/* Labels of everything. */}}
{{- define "knfleet.labels" -}}
app.kubernetes.io/name: knative-operator
app.kubernetes.io/version: {{ .Chart.Version | quote }}
{{- end }}

{{/* Whether a CRD may be written: there is none, or it is this release's own. */}}
{{- define "knfleet.isOurs" -}}
{{- $annotations := ((.found | default dict).metadata | default dict).annotations | default dict }}
{{- $name := index $annotations "meta.helm.sh/release-name" }}
{{- $namespace := index $annotations "meta.helm.sh/release-namespace" }}
{{- if or (not .found) (and (eq $name .root.Release.Name) (eq $namespace .root.Release.Namespace)) }}true{{ end }}
{{- end }}

{{/* Fails when the values for several clusters make no sense. */}}
{{- define "knfleet.checkMulticluster" -}}
{{- $mc := .Values.knative_operator.multicluster | default dict }}
{{- if $mc.enabled }}
{{-   if not $mc.accessProvidersConfig }}
{{-     fail "knative_operator.multicluster.enabled is true but knative_operator.multicluster.accessProvidersConfig is empty; list the access providers there, or set enabled to false" }}
{{-   end }}
{{-   $paths := list }}
{{-   range $number, $plugin := $mc.plugins }}
{{-     $path := $plugin.mountPath | default "" | toString }}
{{-     if not (hasPrefix "/" $path) }}
{{-       fail (printf "knative_operator.multicluster.plugins[%d].mountPath must be an absolute path, got %q" $number $path) }}
{{-     end }}
{{-     $paths = append $paths (clean $path) }}
{{-   end }}
{{-   $own := list "knfleet" "knfleet-kubeconfig-secretreader" "knfleet-secretreader" "kubeconfig-secretreader-plugin" "secretreader-plugin" }}
{{-   range $provider := $mc.accessProvidersConfig.providers }}
{{-     $command := ($provider.execConfig | default dict).command | default "" | toString }}
{{-     if and $command (not (has $command $own)) }}
{{-       $found := false }}
{{-       range $path := $paths }}
{{-         if hasPrefix (printf "%s/" $path) (clean $command) }}{{ $found = true }}{{ end }}
{{-       end }}
{{-       if not $found }}
{{-         fail (printf "provider %q: command %q is not under any plugins[].mountPath %v; mount the plugin's image there, or name a plugin of knfleet's own: secretreader-plugin, kubeconfig-secretreader-plugin" $provider.name (clean $command) $paths) }}
{{-       end }}
{{-     end }}
{{-   end }}
{{- end }}
{{- end }}
