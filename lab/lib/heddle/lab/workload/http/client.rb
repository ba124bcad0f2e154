# frozen_string_literal: true

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # The tasks of every HTTP client, each done as the client's own documentation shows. Each call opens a
        # connection and closes it.
        class Client
          # Counts bytes, and the pieces they came in.
          class Tally
            # @return [Integer]
            attr_reader :bytes

            def initialize
              @bytes = @chunks = @largest = 0
              @smallest = nil
            end

            # @param size [Integer] bytes of a piece that the client yielded
            def chunk(size)
              @chunks += 1
              @bytes += size
              @largest = size if size > @largest
              @smallest = size if @smallest.nil? || size < @smallest
            end

            # @param size [Integer] bytes of a body that the client returned whole
            def whole(size) = @bytes += size

            alias_method :sent, :whole

            # @return [Hash{String => Integer}]
            def to_h = {"bytes" => @bytes, "chunks" => (@chunks if @chunks.positive?),
                        "largest_chunk" => (@largest if @chunks.positive?), "smallest_chunk" => @smallest}
          end

          class << self
            # Loads the client that an implementation of the bench uses.
            # @param kind [String]
            def load(kind)
              require("heddle/lab/workload/http/#{kind.start_with?("custom-") ? "custom" : kind.tr(".-", "_")}")
            end

            # Names the implementations in this subclass.
            # @param kinds [Hash{String => Class}]
            def implements(kinds) = Client.kinds.merge!(kinds)

            # @return [Hash{String => Class}]
            def kinds = @kinds ||= {}

            # @param kind [String]
            # @return [Class]
            def fetch(kind) = Client.kinds.fetch(kind)

            # Loads the library.
            # @return [Array<String>] names and versions
            # @raise [LoadError]
            def versions = []

            # @return [Boolean] whether separate processes do the work
            def processes? = false

            # @param again [Boolean] whether the same server was asked more than once
            # @return [String, nil] an error that no answer shows
            def trouble(again:) = nil

            private

            # @return [String] name and version of a gem, once it is loaded
            # @raise [LoadError] that says how to get it
            def load_gem(name, feature = name)
              require feature
              "#{name} #{Gem.loaded_specs[name]&.version}".strip
            rescue LoadError => error
              raise unless error.path == feature

              raise LoadError, "the gem #{name} is not installed for Ruby #{RUBY_VERSION} (bin/setup --all " \
                "installs it, or gem install #{name})"
            end
          end

          # @param uri [URI::HTTP]
          # @param ca_file [String, nil] certificate to trust; nil for the system's
          # @param gzip [Boolean] whether to ask for a compressed body
          def initialize(uri, ca_file:, gzip:)
            @uri = uri
            @ca_file = ca_file
            @gzip = gzip
          end

          # Fetches the body and yields its pieces as they come.
          # @yieldparam chunk [String] may be the same object each time
          def each_chunk = raise(NotImplementedError)

          # @return [String] the body
          def string = raise(NotImplementedError)

          # @param path [String] the file for the body
          def file(path) = File.open(path, "wb") { |file| each_chunk { |chunk| file.write(chunk) } }

          # @param path [String] the file to send by PUT
          # @return [String] the answer's body
          def upload_file(path) = raise(NotImplementedError)

          # @param body [String] the body to send by PUT
          # @return [String] the answer's body
          def upload_string(body) = raise(NotImplementedError)

          # Makes requests one after another on one connection ("keep-alive"), or on one each ("start", "option",
          # "late"); with "tls-" in front over TLS, if the URL says so.
          # @param kind [String]
          # @yieldparam body [String]
          # @yieldreturn [Boolean] whether to make another
          def small(kind, &block)
            return keep_alive(&block) if kind.end_with?("keep-alive")

            nil while yield(one(kind))
          end

          # @param tally [Tally]
          # @return [void]
          def block(tally)
            each_chunk { |chunk| tally.chunk(chunk.bytesize) }
          end

          private

          # @raise [RuntimeError] unless the status is 200
          def check(status)
            raise "the answer's status is #{status}" unless status.to_i == 200
          end

          def url = @uri.to_s

          def tls? = @uri.scheme == "https"

          # For libraries that take an OpenSSL context.
          def tls_context
            return unless tls?

            OpenSSL::SSL::SSLContext.new.tap { |context| context.set_params(**{ca_file: @ca_file}.compact) }
          end
        end
      end
    end
  end
end
