// Command manifests checks the Kubernetes objects that `helm template` prints. It fails if an
// object has a field that its kind does not have, if a selector selects no pod, if a pod has less
// time to stop than it needs, if a pod does not mount a file that its settings name, or if a pod
// calls a TLS server without TLS.
//
// With the arguments SECRETS FOLDER, it also writes the environment of each server to a file in
// FOLDER. It takes the values of secrets from the file SECRETS, which has lines of the form
// KEY=VALUE.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	f := found{pods: map[string]labels.Set{}, selectors: map[string]labels.Selector{}, calls: map[string]string{}, servers: map[string]corev1.Container{}}
	n, err := f.check(os.Stdin)
	if err == nil && len(os.Args) == 3 {
		err = f.writeSettings(os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
	fmt.Println(n, "objects are valid for Kubernetes")
}

// found collects information about the objects.
type found struct {
	objects int
	// pods has the labels of pods, by the object that creates the pods.
	pods map[string]labels.Set
	// selectors has the selectors of pods, by the object that contains the selector.
	selectors map[string]labels.Selector
	// tls is true if the servers use TLS. calls has the URLs of servers, by the object whose pods
	// call them.
	tls   bool
	calls map[string]string
	// servers has the containers of servers, by the object that creates them.
	servers map[string]corev1.Container
}

// writeSettings writes the environment of each server to a file.
func (f *found) writeSettings(secretsFile, folder string) error {
	b, err := os.ReadFile(secretsFile)
	if err != nil {
		return err
	}
	secrets := map[string]string{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		secrets[key] = value
	}
	for name, c := range f.servers {
		var settings strings.Builder
		for _, e := range c.Env {
			if from := e.ValueFrom; from != nil {
				value, ok := secrets[from.SecretKeyRef.Key]
				if !ok {
					return fmt.Errorf("%s: %s has no value for %s", secretsFile, name, from.SecretKeyRef.Key)
				}
				e.Value = value
			}
			fmt.Fprintf(&settings, "%s=%s\n", e.Name, e.Value)
		}
		if err := os.WriteFile(filepath.Join(folder, strings.ReplaceAll(name, "/", "-")+".env"), []byte(settings.String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (f *found) check(r io.Reader) (objects int, err error) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(r))
	var errs []error
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if len(bytes.TrimSpace(document)) == 0 || bytes.Contains(document, []byte("apiVersion: monitoring.coreos.com/")) {
			continue // objects of the Prometheus operator are not checked
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			if !bytes.Contains(document, []byte("\nkind:")) {
				continue // the document has only comments
			}
			errs = append(errs, fmt.Errorf("%w in\n%s", err, document))
			continue
		}
		f.objects++
		name := kind.Kind + "/" + object.(metav1.Object).GetName()
		errs = append(errs, f.add(name, object)...)
	}
	for name, selector := range f.selectors {
		selected := false
		for _, pod := range f.pods {
			selected = selected || selector.Matches(pod)
		}
		if !selected {
			errs = append(errs, fmt.Errorf("%s selects no pod: %s", name, selector))
		}
	}
	for name, url := range f.calls {
		if strings.HasPrefix(url, "https://") != f.tls {
			errs = append(errs, fmt.Errorf("%s calls %s, but that the servers speak TLS is %t", name, url, f.tls))
		}
	}
	if f.objects == 0 {
		errs = append(errs, errors.New("there is no object"))
	}
	return f.objects, errors.Join(errs...)
}

// add records the pods that an object creates and selects.
func (f *found) add(name string, object any) (errs []error) {
	selects := func(s *metav1.LabelSelector) {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			return
		}
		f.selectors[name] = selector
	}
	switch o := object.(type) {
	case *appsv1.Deployment:
		f.pods[name] = o.Spec.Template.Labels
		if c := o.Spec.Template.Spec.Containers[0]; slices.Contains(c.Args, "serve") {
			f.servers[name] = c
		}
		selects(o.Spec.Selector)
		if !f.selectors[name].Matches(labels.Set(o.Spec.Template.Labels)) {
			errs = append(errs, fmt.Errorf("%s does not select its own pods", name))
		}
		errs = append(errs, stops(name, &o.Spec.Template.Spec), locked(name, &o.Spec.Template.Spec), f.reads(name, &o.Spec.Template.Spec))
	case *batchv1.Job:
		f.pods[name] = o.Spec.Template.Labels
		errs = append(errs, locked(name, &o.Spec.Template.Spec), f.reads(name, &o.Spec.Template.Spec))
	case *batchv1.CronJob:
		pod := &o.Spec.JobTemplate.Spec.Template
		f.pods[name] = pod.Labels
		errs = append(errs, locked(name, &pod.Spec), f.reads(name, &pod.Spec))
	case *corev1.Service:
		f.selectors[name] = labels.SelectorFromSet(o.Spec.Selector)
	case *policyv1.PodDisruptionBudget:
		selects(o.Spec.Selector)
	case *networkingv1.NetworkPolicy:
		selects(&o.Spec.PodSelector)
	}
	return errs
}

// stops checks that a pod gets enough time to stop: for the pause before it, for draining the
// gateway, and then for draining HTTP.
func stops(name string, pod *corev1.PodSpec) error {
	for _, c := range pod.Containers {
		needed := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		for _, e := range c.Env {
			if times := map[string]time.Duration{"BADGED_DRAIN_TIMEOUT": 2, "BADGED_DRAIN_DURATION": 1}[e.Name]; times > 0 {
				drain, err := time.ParseDuration(e.Value)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", name, e.Name, err)
				}
				needed += times * drain
			}
		}
		if given := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; given <= needed {
			return fmt.Errorf("%s has %s to stop, but needs up to %s", name, given, needed)
		}
	}
	return nil
}

// folder is the folder in which the chart mounts files.
const folder = "/etc/badged/"

// reads checks that all files which a pod's settings name are mounted from its volumes, and that
// each volume is mounted. It also records whether servers use TLS, and which URL the pod calls.
func (f *found) reads(name string, pod *corev1.PodSpec) error {
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = false
	}
	var errs []error
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			if _, ok := volumes[m.Name]; !ok {
				errs = append(errs, fmt.Errorf("%s mounts %s, which is no volume", name, m.Name))
			}
			volumes[m.Name] = true
		}
		told := append([]string{}, c.Args...)
		for _, e := range c.Env {
			told = append(told, e.Value)
			switch e.Name {
			case "BADGED_TLS_CERT":
				f.tls = true
			case "BADGED_URL":
				f.calls[name] = e.Value
			}
		}
		for _, text := range strings.Split(strings.Join(told, ":"), ":") { // also folders of a list
			i := strings.Index(text, folder)
			if i < 0 {
				continue
			}
			path := text[i:]
			mounted := false
			for _, m := range c.VolumeMounts {
				mounted = mounted || path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/")
			}
			if !mounted {
				errs = append(errs, fmt.Errorf("%s reads %s, which is not mounted", name, path))
			}
		}
	}
	for volume, mounted := range volumes {
		if !mounted {
			errs = append(errs, fmt.Errorf("%s has the volume %s and does not mount it", name, volume))
		}
	}
	return errors.Join(errs...)
}

// locked checks that a pod has no unnecessary rights, and a memory limit.
func locked(name string, pod *corev1.PodSpec) error {
	var lacks []string
	if pod.SecurityContext == nil || pod.SecurityContext.RunAsNonRoot == nil || !*pod.SecurityContext.RunAsNonRoot {
		lacks = append(lacks, "runAsNonRoot")
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			lacks = append(lacks, "readOnlyRootFilesystem")
		}
		if s == nil || s.Capabilities == nil || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
			lacks = append(lacks, "capabilities: drop: [ALL]")
		}
		if c.Resources.Limits.Memory().IsZero() {
			lacks = append(lacks, "a limit of memory")
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return errors.New(name + " lacks " + strconv.Itoa(len(lacks)) + ": " + strings.Join(lacks, ", "))
}
