package memory

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLimitOfGroup(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"a container":              {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		"another root":             {map[string]string{"proc/self/cgroup": "0::/kubepods/pod1/c1\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		"a group above":            {map[string]string{"proc/self/cgroup": "0::/a.slice/b.service\n", "sys/fs/cgroup/a.slice/memory.max": "1048576\n", "sys/fs/cgroup/a.slice/b.service/memory.max": "max\n"}, 1 << 20},
		"version 1":                {map[string]string{"proc/self/cgroup": "5:cpu:/\n4:memory:/docker/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "2097152\n"}, 2 << 20},
		"no limit":                 {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"no limit in version 1":    {map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"a system without cgroups": {nil, 0},
	} {
		root := t.TempDir()
		for file, text := range tt.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, ok := ofGroup(root)
		if ok != (tt.want > 0) || ok && got != tt.want {
			t.Errorf("%s: %d, %t, want %d", name, got, ok, tt.want)
		}
	}
}
