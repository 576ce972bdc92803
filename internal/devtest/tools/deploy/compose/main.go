// Command compose loads a Compose file like `docker compose`, with the variables of the
// environment. It fails if docker compose would fail, if an image has no fixed version, or if a
// permanent service has no health check.
//
// If a second argument FOLDER is given, it also writes the environment of each badged server to a
// file in FOLDER.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: compose FILE [FOLDER]")
		os.Exit(2)
	}
	services, err := check(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		os.Exit(1)
	}
	fmt.Println(services, "services")
}

func check(ctx context.Context, file string) (services int, err error) {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithOsEnv)
	if err != nil {
		return 0, err
	}
	project, err := options.LoadProject(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, s := range project.Services {
		if _, tag, ok := strings.Cut(s.Image, ":"); !ok || tag == "latest" {
			errs = append(errs, fmt.Errorf("%s: the image %s is not pinned", s.Name, s.Image))
		}
		// The image of badged contains its health check.
		if s.Build == nil && s.Restart != "no" && (s.HealthCheck == nil || len(s.HealthCheck.Test) == 0) {
			errs = append(errs, fmt.Errorf("%s has no health check", s.Name))
		}
		for name, need := range s.DependsOn {
			if need.Condition == types.ServiceConditionStarted {
				errs = append(errs, fmt.Errorf("%s does not wait until %s works", s.Name, name))
			}
		}
	}
	if len(os.Args) == 3 {
		for _, s := range project.Services {
			if s.Environment["BADGED_ROLES"] == nil {
				continue
			}
			var settings strings.Builder
			for name, value := range s.Environment {
				fmt.Fprintf(&settings, "%s=%s\n", name, *value)
			}
			errs = append(errs, os.WriteFile(filepath.Join(os.Args[2], "compose-"+s.Name+".env"), []byte(settings.String()), 0o600))
		}
	}
	return len(project.Services), errors.Join(errs...)
}
