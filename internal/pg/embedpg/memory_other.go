//go:build unix && !linux

package embedpg

func memoryDir() string { return "" }
