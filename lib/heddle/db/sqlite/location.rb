# frozen_string_literal: true

require "uri"

module Heddle
  module DB
    module SQLite
      # The address of a database: <tt>sqlite:///absolute/path</tt>, <tt>sqlite:relative/path</tt> or
      # <tt>sqlite::memory:</tt>, with options behind a "?".
      #
      # @api private
      module Location
        FORM = /\Asqlite3?:([^?#]*)(?:\?([^#]*))?\z/im
        HELP = "write sqlite:///absolute/path, sqlite:relative/path or sqlite::memory:, and ? # % in the path as " \
          "%3F %23 %25"
        MEMORY = ":memory:"
        private_constant :FORM, :HELP

        class << self
          # @param url [String, URI]
          # @return [Hash{Symbol => Object}] the options that the URL has
          # @raise [ArgumentError]
          def options(url)
            path, query = FORM.match(url.to_s)&.captures
            raise ArgumentError, "#{url.to_s.inspect} is not the address of an SQLite database: #{HELP}" unless path

            options = {database: decode(file(path, url))}
            options.merge!(URI.decode_www_form(query || "").to_h.transform_keys(&:to_sym))
            options.reject { |_, value| value == "" }
          end

          # @param database [String]
          # @return [String] the path from the root, so that a later Dir.chdir does not matter
          def absolute(database) = (database == MEMORY) ? database : File.expand_path(database)

          private

          def file(path, url)
            return path unless path.start_with?("//")
            return path.delete_prefix("//") if path.start_with?("///")

            raise ArgumentError, "#{url.to_s.inspect} names a host, and SQLite's databases are files: #{HELP}"
          end

          def decode(path)
            URI.decode_www_form_component(path.gsub("+", "%2B"))
          rescue ArgumentError
            raise ArgumentError, "the address has a % without two digits behind it: #{HELP}", cause: nil
          end
        end
      end
      private_constant :Location
    end
  end
end
