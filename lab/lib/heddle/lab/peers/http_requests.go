// Makes many requests by net/http, so many at once, and prints what they took as a line of JSON:
//
//	http_requests URL REQUESTS AT_ONCE kept|fresh [WARM_UP_URL REQUESTS]...
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func get(client *http.Client, url string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != 200 || string(body) != "done") {
		err = fmt.Errorf("wrong answer: %d %.60q", response.StatusCode, body)
	}
	return err
}

// The answer to a request is awaited before a goroutine makes its next one. Returns how many requests failed, and why
// the first of them did.
func getAll(client *http.Client, url string, requests, atOnce int) (errors int, first any) {
	var lock sync.Mutex
	var all sync.WaitGroup
	for worker := 0; worker < atOnce; worker++ {
		all.Add(1)
		go func(own int) {
			defer all.Done()
			for n := own; n < requests; n += atOnce {
				if err := get(client, url); err != nil {
					lock.Lock()
					if errors++; first == nil {
						first = err.Error()
					}
					lock.Unlock()
				}
			}
		}(worker)
	}
	all.Wait()
	return
}

func number(text string) int {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return number
}

func usage() (usage syscall.Rusage) {
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return
}

func seconds(before, after syscall.Timeval) float64 {
	return time.Duration(after.Nano() - before.Nano()).Seconds()
}

func main() {
	requests, atOnce := number(os.Args[2]), number(os.Args[3])
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce, DisableKeepAlives: os.Args[4] == "fresh"}
	if !transport.DisableKeepAlives {
		transport.MaxConnsPerHost = atOnce // without it a connection that becomes idle during a dial makes one too many
	}
	client := &http.Client{Timeout: time.Minute, Transport: transport}
	for warmUps := os.Args[5:]; len(warmUps) > 0; warmUps = warmUps[2:] {
		getAll(client, warmUps[0], number(warmUps[1]), atOnce)
	}

	runtime.GC()
	before, start := usage(), time.Now()
	errors, first := getAll(client, os.Args[1], requests, atOnce)
	wall, after := time.Since(start), usage()
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"operations": requests - errors, "errors": errors, "first_error": first, "wall": wall.Seconds(),
		"user": seconds(before.Utime, after.Utime), "system": seconds(before.Stime, after.Stime),
		"peak_rss_kib": after.Maxrss})
}
