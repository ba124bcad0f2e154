# frozen_string_literal: true

require "heddle/lab"

# Records as `heddle bench http` leaves them, without a measurement: twelve clients, five sites.
module LabRecords
  CLIENTS = %w[stock heddle heddle-kept net-http-persistent curb httpx http.rb excon typhoeus async-http raw
    curl].freeze
  SITES = Heddle::Lab::Bench::HTTP::Sites.names.first(5).freeze

  module_function

  # @param ruby [String] its version
  # @param trouble [String, nil] the error of a cell that failed
  # @param seed [Integer] draws the noise
  # @return [Heddle::Lab::Record]
  def http(ruby, clients: CLIENTS, sites: SITES, rounds: 5, trouble: nil, seed: ruby.sum)
    record = Heddle::Lab::Record.new(header(ruby, clients, sites, rounds))
    random = Random.new(seed)
    (1..rounds).to_a.product(sites, clients).each do |round, site, client|
      twins = (client == clients.first) ? [false, true] : [false]
      twins.each do |twin|
        cell = {round: round, case: site, model: client, twin: twin}
        cell = if trouble && client == clients.last && site == sites.last
          {**cell, error: trouble}
        else
          {**cell, measures: measures(random, site, clients.index(client))}
        end
        record.rounds << Heddle::Lab::Record::Round.new(**cell)
      end
    end
    record
  end

  # The first client takes the most, so that its figures can be told from the others'.
  def measures(random, site, place)
    cpu = (1.0 / (place + 1) + 0.1) * (SITES.index(site) + 1) * random.rand(0.97..1.03)
    {"wall" => cpu * random.rand(1.2..1.4), "cpu" => cpu, "user" => cpu * 0.3, "system" => cpu * 0.7,
     "gc" => 0.0, "gc_count" => 0, "allocations" => 10_000 + place, "peak_rss_kib" => 30_000 + place,
     "operations" => 10, "bytes" => 100_000_000, "chunks" => 6000 + place, "largest_chunk" => 16_384,
     "smallest_chunk" => 106, "digest_ok" => true, "errors" => 0, "site" => site, "test" => "length to block"}
  end

  def header(ruby, clients, sites, rounds)
    {
      "bench" => "http",
      "argv" => ["bench", "http", "--models", clients.join(","), "--sites", sites.join(","), "--rounds", rounds.to_s],
      "started_at" => "2026-11-28T22:57:28Z", "seed" => 1, "rounds_asked" => rounds,
      "options" => {"sites" => sites, "tests" => ["length to block"], "size" => 10_000_000, "busy_threads" => 0},
      "environment" => {"ruby" => "ruby #{ruby} (2026-11-23) +PRISM [x86_64-linux]", "yjit" => false,
                        "kernel" => "Linux 6.18 x86_64", "cpu" => "a CPU", "cores" => 2,
                        "pinned" => "client to core 0, server to core 1", "load_before" => "2.13 0.77 2.84",
                        "load_after" => "1.41 1.03 2.59"},
      "cases" => sites,
      "models" => clients.map { |client| {"name" => client, "versions" => ["#{client} 1.0"], "environment" => {}} },
      "missing" => []
    }
  end
end
