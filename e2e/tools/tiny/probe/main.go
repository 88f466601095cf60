// Command probe is both ends of the cluster's own network tests: "probe serve :8080" answers with its pod's name,
// and "probe get URL" prints what a URL answers.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const timeout = 5 * time.Second

func main() {
	if len(os.Args) != 3 {
		fail("usage: probe serve ADDRESS | probe get URL")
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2])
	case "get":
		get(os.Args[2])
	default:
		fail("unknown command " + os.Args[1])
	}
}

func serve(address string) {
	name, err := os.Hostname()
	if err != nil {
		fail(err.Error())
	}
	server := &http.Server{
		Addr:              address,
		ReadHeaderTimeout: timeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, name)
		}),
	}
	fail(server.ListenAndServe().Error())
}

func get(url string) {
	client := &http.Client{Timeout: timeout}
	response, err := client.Get(url)
	if err != nil {
		fail(err.Error())
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		fail(err.Error())
	}
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}
