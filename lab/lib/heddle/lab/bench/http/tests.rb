# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      class HTTP < Bench
        # The tests of the clients: a body of some shape to some destination, an upload, small requests.
        class Tests
          include Enumerable

          # The path at which the load server sends each shape of a body.
          SHAPES = {"length" => "/b/", "chunked" => "/c/", "gzip" => "/z/", "tls" => "/b/"}.freeze
          DESTINATIONS = %w[block string file].freeze
          UPLOADS = %w[string file].freeze
          SMALL = {"keep-alive" => "GET, kept alive", "start" => "start, GET, close",
                   "option" => "start with an option, GET, close",
                   "late" => "start, GET that takes 60 ms, close", "tls-keep-alive" => "TLS, GET, kept alive",
                   "tls-start" => "TLS, start, GET, close"}.freeze
          # Milliseconds that the server waits.
          LATE = 60
          # The implementations that take options of `start`.
          NET_HTTP = /\A(stock|heddle|heddle-kept|custom-.*)\z/
          private_constant :SHAPES, :DESTINATIONS, :UPLOADS, :SMALL, :LATE, :NET_HTTP

          # @!attribute name [String]
          # @!attribute params [Hash{String => String}] "what", and the rest of it
          Test = Struct.new(:name, :params, keyword_init: true) do
            # @return [Boolean] whether the test makes many small requests
            def small? = params["what"].start_with?("small")

            # @return [Boolean] whether it is over TLS
            def tls? = params["shape"] == "tls" || params["small"].to_s.start_with?("tls-")

            # @return [Boolean]
            def upload? = params["what"] == "upload"

            # Whether an implementation can do this test.
            # @param kind [String]
            # @return [Boolean]
            def for?(kind)
              return kind.match?(NET_HTTP) if params["small"] == "option"

              case kind
              # A process returns no String, and does not report the length of a compressed body.
              when "curl" then !small? && params["to"] != "string" &&
                params["from"] != "string" && params.values_at("shape", "to") != %w[gzip block]
              when "excon" then params["shape"] != "gzip" || params["to"] == "string" # it yields compressed pieces
              when *LANGUAGES then small? && !tls?
              when "rfuzz" then !tls? && !upload? && params["shape"] != "gzip"
              else true
              end
            end
          end

          # @param parser [OptionParser]
          def define_options(parser)
            choose(parser, "--shapes NAMES", SHAPES.keys, "of the bodies (length)") { |names| @shapes = names }
            choose(parser, "--dest NAMES", DESTINATIONS, "where they go (block)") { |names| @destinations = names }
            choose(parser, "--upload NAMES", UPLOADS, "bodies sent, out of") { |names| @uploads = names }
            choose(parser, "--small NAMES", SMALL.keys, "many requests for 4 bytes") { |names| @small = names }
          end

          # @return [Boolean] whether the command line chose any
          def chosen? = [@shapes, @destinations, @uploads, @small].any?

          # @raise [UsageError] when only our own sites can serve the tests
          def check_for_urls
            if @shapes || @uploads || @small
              raise UsageError, "--shapes, --upload and --small work with our own sites only, not with a URL"
            end
          end

          # @yieldparam test [Test]
          def each(&block) = tests.each(&block)

          private

          def choose(parser, option, names, what)
            parser.on(option, Array, "#{what}: #{names.join(",")}") do |asked|
              wrong = asked - names
              if wrong.any?
                raise UsageError, "#{option.split.first} takes #{names.join(", ")}, not #{wrong.first.inspect}"
              end

              yield asked.uniq
            end
          end

          def tests = downloads + uploads + small

          def downloads
            return [] if (@uploads || @small) && !(@shapes || @destinations)

            (@shapes || ["length"]).product(@destinations || ["block"]).map do |shape, to|
              Test.new(name: "#{shape} to #{to}",
                params: {"what" => "download", "shape" => shape, "path" => SHAPES.fetch(shape), "to" => to})
            end
          end

          def uploads
            @uploads.to_a.map do |from|
              Test.new(name: "upload of a #{from}", params: {"what" => "upload", "path" => "/u", "from" => from})
            end
          end

          def small
            @small.to_a.map do |kind|
              Test.new(name: SMALL.fetch(kind),
                params: {"what" => "small", "path" => (kind == "late") ? "/#{LATE}" : "/0", "small" => kind})
            end
          end
        end
      end
    end
  end
end
