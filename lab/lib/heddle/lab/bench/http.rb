# frozen_string_literal: true

require_relative "http/elsewhere"
require_relative "http/servers"
require_relative "http/sheet"
require_relative "http/sites"
require_relative "http/tests"

module Heddle
  module Lab
    class Bench
      # The cost of HTTP clients for large bodies from near and far, as measured in 2008, and for small requests.
      class HTTP < Bench
        # The first, and those that begin with custom, are those of 2008, in the order of the graph of 2008.
        IMPLEMENTATIONS = %w[stock custom-16kbuffer custom-16kbuffer-notimeout custom-16kbuffer-select
          custom-16kbuffer-selectwithsysread
          custom-64kbuffer-notimeout custom-64kbuffer-select heddle heddle-kept net-http-persistent curb httpx http.rb
          excon typhoeus async-http rfuzz
          raw curl].freeze

        # Clients of other languages, for small requests, measured only when asked for.
        LANGUAGES = %w[go aiohttp undici].freeze

        bench "http",
          about: "what HTTP clients spend on large bodies from five sites and at full speed, and on small requests",
          kinds: (IMPLEMENTATIONS + LANGUAGES).to_h { |name| [name, :none] },
          default_models: IMPLEMENTATIONS, default_rounds: 3,
          peers: %w[net-http-persistent curb httpx http.rb excon typhoeus async-http rfuzz curl] + LANGUAGES

        transferred = ->(m) { m["bytes"] if m["bytes"].to_i.positive? && m["small"].nil? }
        small = ->(m) { m["operations"] if m["small"] && m["operations"].positive? }
        PERCENT = Metric.new(key: :percent, title: "CPU used, per cent of the time", better: :lower,
          value: ->(m) { m["cpu"] * 100 / m["wall"] if transferred.call(m) })
        PER_GB = Metric.new(key: :per_gb, title: "CPU seconds per GB", better: :lower,
          value: ->(m) { transferred.call(m)&.then { |bytes| m["cpu"] * 1e9 / bytes } })
        SPEED = Metric.new(key: :speed, title: "KBytes a second", better: :higher,
          value: ->(m) { transferred.call(m)&.then { |bytes| bytes / 1024.0 / m["wall"] } })
        PER_REQUEST = Metric.new(key: :per_request, title: "CPU µs per request", better: :lower,
          value: ->(m) { small.call(m)&.then { |count| m["cpu"] * 1e6 / count } })
        OBJECTS = Metric.new(key: :objects, title: "Objects per request", better: :lower,
          value: ->(m) { small.call(m)&.then { |count| m["allocations"]&./(count.to_f) } })
        REQUESTS = Metric.new(key: :requests, title: "Requests a second", better: :higher,
          value: ->(m) { small.call(m)&.then { |count| count / m["wall"] } })
        private_constant :PERCENT, :PER_GB, :SPEED, :PER_REQUEST, :OBJECTS, :REQUESTS

        # @see Bench.operands
        def self.operands = "[[NAME=]URL...]"

        def initialize
          super
          @size = 10_000_000
          @requests = 1000
          @busy_threads = 0
          @pinned = true
          @urls = []
          @tests = Tests.new
        end

        # @see Bench#define_options
        def define_options(parser)
          parser.on("--sites NAMES", Array, "where bodies come from (#{Sites.names.join(",")})") do |names|
            @site_names = Sites.check(names)
          end
          parser.on("--size BYTES", Integer, "of a body (#{@size})") { |size| @size = at_least(1, "--size", size) }
          parser.on("--adapter FILE", "also measure your own client, a class in this file: see Measuring") do |path|
            adapters[adapter_name(path)] = File.expand_path(path)
          end
          @tests.define_options(parser)
          parser.on("--requests N", Integer, "small requests timed (#{@requests})") do |count|
            @requests = at_least(1, "--requests", count)
          end
          parser.on("--busy-threads N", Integer, "Ruby threads that compute meanwhile (#{@busy_threads})") do |count|
            @busy_threads = at_least(0, "--busy-threads", count)
          end
          parser.on("--no-pin", "let clients and servers run on every core, where each has one of its own otherwise") do
            @pinned = false
          end
        end

        # Bodies from other servers, instead of our own sites: URLs, each with a name and = in front, if it gets one.
        # @see Bench#operands=
        def operands=(urls)
          @urls = urls.map { |url| Elsewhere.new(url) }
          twice = @urls.map(&:name).tally.find { |_, count| count > 1 }
          raise UsageError, "two sites have the name #{twice.first}" if twice

          @tests.check_for_urls unless urls.empty?
        end

        # @see Bench#options
        def options
          {"sites" => sites.map(&:name), "tests" => @tests.map(&:name), "size" => (@size if @urls.empty?),
           "requests" => (@requests if @tests.any?(&:small?)), "busy_threads" => @busy_threads,
           "pinned" => (false unless @pinned)}.compact
        end

        # @see Bench#kinds
        def kinds = super.merge(adapters.transform_values { :none })

        # @see Bench#models
        def models
          return @models if @models

          asked = super
          missing = adapters.values.find { |path| !File.file?(path) }
          raise UsageError, "--adapter: there is no file #{missing}" if missing

          @models = asked + (adapters.keys - asked.map(&:name)).map { |name| Model.parse(name, kinds) }
        end

        # @see Bench#files
        def files(model) = adapters.values_at(model.kind).compact

        # Busy threads cost something else if they have another core than the client.
        # @see Bench#pinned?
        def pinned? = @pinned

        # @see Bench#cases
        def cases
          @cases ||= sites.product(@tests.to_a).map do |site, test|
            Case.new(name: label(site, test),
              params: {"site" => site.name, "test" => test.name, **test.params, "requests" => @requests,
                       "repeat" => site.repeat, "busy_threads" => @busy_threads, "bytes" => @size})
          end
        end

        # @see Bench#applies?
        def applies?(model, bench_case) = @tests.find { |test| test.name == bench_case.params["test"] }.for?(model.kind)

        # @see Bench#open
        def open(affinity)
          Servers.open(affinity, sites, @tests, @size) do |servers|
            @servers = servers
            yield
          end
        end

        # @see Bench#params
        def params(bench_case)
          site = sites.find { |one| one.name == bench_case.params["site"] }
          bench_case.params.merge(@servers.address(site, @tests.find { |test| test.name == bench_case.params["test"] }))
        end

        # @see Bench#reference_for
        def reference_for(_, present) = present.include?("stock") ? "stock" : present.first

        # @see Bench#title
        def title
          size = (@size % 1_000_000).zero? ? "#{@size / 1_000_000} MB" : "#{@size} bytes"
          what = if @urls.any?
            "Bodies from #{@urls.map(&:name).join(", ")}"
          else
            [("Bodies of #{size}" unless @tests.all?(&:small?)), ("small requests" if @tests.any?(&:small?))]
              .compact.join(" and ")
          end
          beside = ", beside #{@busy_threads} busy threads" if @busy_threads.positive?
          "#{what[0].upcase}#{what[1..]} by HTTP clients#{beside}"
        end

        # @see Bench#tables
        def tables(summary)
          busy = @busy_threads.positive?
          large, small = cases.partition { |bench_case| !bench_case.params["what"].start_with?("small") }.map do |part|
            part.map(&:name)
          end
          tables = tables_of(summary, large, values: busy ? [SPEED] : [PER_GB, PERCENT, SPEED],
            ratios: busy ? [SPEED] : [PER_GB], notes: notes) +
            tables_of(summary, small, values: busy ? [REQUESTS] : [PER_REQUEST, OBJECTS, REQUESTS],
              ratios: busy ? [REQUESTS] : [PER_REQUEST], notes: [])
          [*tables, Report::Matrix.new(summary, self).troubles].compact
        end

        # @see Bench#details
        def details(summary) = [Sheet.of(summary.record).table]

        # @see Bench#csv
        def csv(record) = Sheet.of(record).to_csv

        # @see Bench#graphs
        def graphs(summary)
          sheet = Sheet.of(summary.record)
          if @busy_threads.positive?
            sheet.charts("KBytes/second")
          else
            sheet.charts("%CPU").merge(sheet.charts("CPU s per GB"))
          end
        end

        private

        # The user's files, by the names of their models.
        def adapters = @adapters ||= {}

        def adapter_name(path)
          name = File.basename(path, ".rb")
          raise UsageError, "--adapter: #{name} is another model's name; rename the file" if self.class.kinds.key?(name)

          name
        end

        def sites
          return @urls unless @urls.empty?

          @sites ||= Sites.all(@site_names || (@tests.chosen? ? ["local"] : Sites.names))
        end

        def label(site, test)
          return site.name if @tests.count == 1
          return test.name if sites.size == 1

          "#{site.name}, #{test.name}"
        end

        def notes
          return ["the bodies' names stand for URLs as they were given; speeds are the network's"] unless @urls.empty?

          sites.map { |site| "#{site.name}: #{site.describe}" }
        end

        def tables_of(summary, names, values:, ratios:, notes:)
          return [] if names.empty?

          matrix = Report::Matrix.new(summary, self, cases: names, models_down: names.size <= 8)
          tables = values.map { |metric| matrix.values(metric, spread: metric == values.first) }
          tables.first.notes.concat(notes)
          tables + ratios.map { |metric| matrix.ratios(metric) }
        end
      end
    end
  end
end
