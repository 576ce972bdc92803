// Command program is mutated by the tests of mutation.
package main

import "fmt"

func main() { fmt.Println("sound") }
