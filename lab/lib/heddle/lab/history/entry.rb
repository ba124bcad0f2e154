# frozen_string_literal: true

require "etc"
require "fileutils"
require "json"
require "time"

module Heddle
  module Lab
    class History
      # What a history keeps of a run: the figure of each round, and what the figures depend on. A file each, which
      # `lab/schema/history.json` describes.
      class Entry
        SCHEMA = "heddle-history/1"
        # The entries that a file must have, and of which class they are.
        SHAPE = {"bench" => String, "title" => String, "started_at" => String, "revision" => Hash, "machine" => Hash,
                 "ruby" => Hash, "options" => Hash, "versions" => Hash, "cases" => Array, "models" => Array,
                 "metrics" => Array, "values" => Array, "references" => Array, "floors" => Array}.freeze
        private_constant :SCHEMA, :SHAPE

        class << self
          # @param record [Record] of a run that came to its end
          # @param run [Report::Run] of it
          # @param title [String] what the bench calls its report
          # @param revision [Hash{String => Object}] as of {revision}, from before the run
          # @param machine [String] tells it from others of its kind
          # @return [Entry]
          def of(record, run, title:, revision:, machine: Etc.uname[:nodename])
            environment = record.header["environment"]
            new(
              "bench" => record.header["bench"], "title" => title, "argv" => record.header["argv"],
              "started_at" => record.header["started_at"], "revision" => revision,
              "machine" => {"name" => machine, **environment.slice("cpu", "cores", "kernel", "governor", "pinned")},
              "ruby" => environment.slice("ruby", "yjit"), "options" => record.header["options"],
              "versions" => record.header["models"].to_h { |model| [model["name"], versions(model)] },
              **JSON.parse(JSON.generate(run.kept_figures))
            )
          end

          # @return [Hash{String => Object}] of the checkout, or else the version of the gem
          def revision = Checkout.revision || {"version" => VERSION}

          # @param file [String]
          # @return [Entry]
          # @raise [Error] naming the file, when it cannot be read or is not such an entry
          def read(file) = Error.in(file) { parse(File.read(file)) }

          # @param text [String]
          # @return [Entry]
          # @raise [Error]
          def parse(text)
            whole = JSON.parse(text)
            unless whole.is_a?(Hash) && whole["schema"] == SCHEMA
              raise Error, "this is not a file that heddle bench NAME --record DIR wrote (schema #{SCHEMA})"
            end

            complaint = complaint_of(whole)
            raise Error, "this file of a history is broken: #{complaint}" if complaint

            new(whole.except("schema"))
          rescue JSON::ParserError => error
            raise Error, "this is not JSON: #{error.message.lines.first&.strip}"
          end

          private

          def versions(model) = [*model["versions"], *model["environment"].map { |pair| pair.join("=") }]

          def complaint_of(whole)
            wrong = SHAPE.find { |name, kind| !whole[name].is_a?(kind) }
            return "it lacks #{wrong.first}, or has something else there" if wrong
            times = [whole["started_at"], whole["revision"].fetch("committed_at", whole["started_at"])]
            return "what should be a time is none" unless times.all? { |text| time?(text) }
            return "it names no revision" unless whole["revision"].values_at("git", "version").grep(String).one?
            return "it names no Ruby" unless whole["ruby"]["ruby"].is_a?(String)
            return "a case, a model or a metric has no name" unless names(whole).all?(String)

            %w[values references floors].find { |name| !fits?(whole, name) }&.then { |name| "its #{name} do not fit" }
          end

          def time?(text)
            Time.iso8601(text)
          rescue ArgumentError, TypeError
            false
          end

          def names(whole)
            {"cases" => "name", "metrics" => "title"}.flat_map do |list, key|
              whole[list].map { |one| one.is_a?(Hash) ? one[key] : nil }
            end + whole["models"]
          end

          # A value for each metric, case and model; null where there is none.
          def fits?(whole, name)
            sizes = whole.values_at("metrics", "cases", "models").map(&:size)
            number = ->(one) { one.nil? || one.is_a?(Numeric) }
            cell = (name == "values") ? ->(one) { one.nil? || (one.is_a?(Array) && one.all?(&number)) } : number
            nested?(whole[name], sizes, cell)
          end

          def nested?(list, sizes, cell)
            return cell.call(list) if sizes.empty?

            list.is_a?(Array) && list.size == sizes.first && list.all? { |one| nested?(one, sizes.drop(1), cell) }
          end
        end

        # @param whole [Hash{String => Object}]
        def initialize(whole)
          @whole = whole
        end

        # @param name [String]
        # @return [Object] what the file has there
        def [](name) = @whole[name]

        # What must be the same where figures are joined in one line.
        # @return [Array<Object>]
        def kind = [self["bench"], self["options"], machine.slice("name", "cpu", "cores"), self["ruby"]]

        # By the time of the commit, so that an old revision that is measured today stands where it belongs.
        # @return [Array<Time>]
        def order = [self["revision"]["committed_at"] || self["started_at"], self["started_at"]].map { |one| time(one) }

        # @return [String] of the revision, for a reader
        def label
          git, dirty, version = self["revision"].values_at("git", "dirty", "version")
          git ? "#{git[0, 8]}#{"+" if dirty}" : version
        end

        # @return [Hash{String => String}] on what the figures depend beside the revision
        def circumstances
          {**machine.slice("kernel", "governor", "pinned"),
           **self["versions"].to_h { |model, versions| [model, Array(versions).join(", ")] }}
        end

        # @param metric [String] its title
        # @param name [String] of a case
        # @param model [String]
        # @return [Hash{Integer => Float}] the figures by their round
        def rounds(metric, name, model)
          values = at("values", metric, name, model) || []
          values.each.with_index(1).to_h { |value, round| [round, value] }.compact
        end

        # @return [String, nil] the model with which the model is compared there
        def reference(metric, name, model)
          at("references", metric, name, model)&.then { |place| self["models"][place] }
        end

        # @return [Float, nil] the noise floor of the model there, a share; only references have one
        def floor(metric, name, model) = at("floors", metric, name, model)

        # Writes the file. A run that was resumed has the same name again.
        # @param directory [String] is made if it is missing
        # @return [String] the file's path
        # @raise [Error] when it cannot be written
        def write(directory)
          FileUtils.mkdir_p(directory)
          path = File.join(directory, "#{file_name}.json")
          File.write("#{path}.new", to_json)
          File.rename("#{path}.new", path)
          path
        rescue SystemCallError => error
          raise Error, "cannot write the history: #{error.message}"
        end

        # @return [String] a line for each metric's figures
        def to_json(*)
          entries = {"schema" => SCHEMA, **@whole}.map do |name, value|
            nested = %w[values references floors metrics].include?(name)
            text = nested ? "[\n#{value.map(&:to_json).join(",\n")}\n]" : value.to_json
            "#{name.to_json}: #{text}"
          end
          "{#{entries.join(",\n")}}\n"
        end

        private

        def machine = self["machine"]

        def time(text) = Time.iso8601(text)

        def file_name
          ruby = "ruby#{self["ruby"]["ruby"][/[\d.]+/]}#{"-yjit" if self["ruby"]["yjit"]}"
          "#{self["bench"]}-#{ruby}-#{time(self["started_at"]).strftime("%Y%m%dT%H%M%SZ")}-#{label.delete("+")}"
        end

        def at(list, metric, name, model)
          places = [self["metrics"].index { |one| one["title"] == metric },
            self["cases"].index { |one| one["name"] == name }, self["models"].index(model)]
          self[list].dig(*places) if places.all?
        end
      end
    end
  end
end
