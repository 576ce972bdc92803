package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// javaLibraries are the libraries that the Java client needs, as Debian names them.
var javaLibraries = []string{"okhttp.jar", "okio.jar", "com.android.json.jar"}

// java returns the command that runs a program of tests/clients/java.
func java(t *testing.T, main string, args ...string) []string {
	t.Helper()
	classPath, err := compiledJava()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat([]string{"java"}, briefJVM(""), []string{"-cp", classPath, main}, args)
}

// oftenJava is java for a program of the conformance kit that is started many times. It uses an
// archive of the classes that a first run has loaded, so that it starts faster.
func oftenJava(t *testing.T, main string) []string {
	t.Helper()
	program := java(t, main)
	classes := filepath.Join(t.TempDir(), "classes.jsa")
	with := func(flag string) []string {
		return slices.Insert(slices.Clone(program), 1, "-Xlog:disable", flag+classes)
	}
	first := exec.CommandContext(t.Context(), binary, slices.Concat([]string{"conformance", "--only=command-retried", "--timeout=" + patience.String(), "--"}, with("-XX:ArchiveClassesAtExit="))...)
	if out, err := first.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return with("-XX:SharedArchiveFile=")
}

// briefJVM returns flags that make a JVM start fast, for programs that run for about a second.
// prefix is put before each flag.
func briefJVM(prefix string) (flags []string) {
	for _, flag := range []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"} {
		flags = append(flags, prefix+flag)
	}
	return flags
}

// compiledJava compiles the Java client, the classes of the docs and the programs of
// tests/clients/java for Java 8, once for all tests, and returns the class path. Android's
// classes in the folder android have only the methods that the docs call.
var compiledJava = sync.OnceValues(func() (classPath string, err error) {
	dir := filepath.Join(filepath.Dir(binary), "java")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	sources, err := javaOfDocs(dir)
	if err != nil {
		return "", err
	}
	for _, pattern := range []string{"../web/java/src/com/badged/client/*.java", "clients/java/*.java", "clients/java/android/*.java"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return "", fmt.Errorf("no sources %s: %w", pattern, err)
		}
		sources = append(sources, files...)
	}
	var paths []string
	for _, library := range javaLibraries {
		path := filepath.Join("/usr/share/java", library)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%w: run make needs", err)
		}
		paths = append(paths, path)
	}
	libraries := strings.Join(paths, string(filepath.ListSeparator))
	// -options: newer compilers warn that support of Java 8 will end.
	args := slices.Concat(briefJVM("-J"), []string{"--release", "8", "-Xlint:all,-options", "-Werror", "-d", dir, "-cp", libraries}, sources)
	if out, err := exec.Command("javac", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("javac: %w\n%s", err, out)
	}
	jar := dir + ".jar" // class data sharing needs a jar, not a folder
	if out, err := exec.Command("jar", "cf", jar, "-C", dir, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("jar: %w\n%s", err, out)
	}
	return jar + string(filepath.ListSeparator) + libraries, nil
})

// javaOfDocs writes the Java classes of the docs, and a class with the statements of the
// client's README, into a folder and returns their files.
func javaOfDocs(dir string) (sources []string, err error) {
	block := regexp.MustCompile("(?s)```java\n(?:// (\\w+\\.java)\n)?(.*?)```")
	for _, path := range []string{"../docs/clients-mobile.md", "../docs/push.md", "../web/java/README.md"} {
		page, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, m := range block.FindAllSubmatch(page, -1) {
			name, text := string(m[1]), string(m[2])
			if name == "" {
				name, text = "Readme.java", fmt.Sprintf(javaReadme, text)
			}
			source := filepath.Join(dir, name)
			if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
				return nil, err
			}
			sources = append(sources, source)
		}
	}
	if len(sources) != 3 {
		return nil, fmt.Errorf("the docs have %d blocks of Java, want 3 in files of different names", len(sources))
	}
	return sources, nil
}

// javaReadme is a class for statements.
const javaReadme = `
import com.badged.client.BadgeClient;
import okhttp3.OkHttpClient;

final class Readme {
    interface Backend {
        String badgeToken(boolean expired);
    }

    void show(Backend myBackend) {
        %s
    }
}
`
