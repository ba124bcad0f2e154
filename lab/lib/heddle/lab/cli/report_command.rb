# frozen_string_literal: true

require "fileutils"

module Heddle
  module Lab
    class CLI
      # `heddle bench report FILES`: combines the files of runs of `heddle bench http`, also those of 2008, and draws
      # them.
      class ReportCommand
        FORMATS = %w[table csv md].freeze
        private_constant :FORMATS

        # @param out [IO]
        def initialize(out)
          @out = out
          @format = "table"
          @name = "http"
          @columns = ["%CPU", "CPU s per GB"]
        end

        # @param argv [Array<String>]
        # @return [Integer] 0
        # @raise [UsageError, OptionParser::ParseError, Error]
        def run(argv)
          files = parser.parse(argv)
          return @out.puts(parser.help).then { 0 } if @help
          raise UsageError, "no files given; heddle bench http -o csv writes one, --out DIR a .json" if files.empty?

          sheet = combine(files)
          write(sheet) if @directory
          @out.puts render(sheet)
          0
        end

        private

        def parser
          @parser ||= OptionParser.new do |options|
            known = Bench::HTTP::Sheet::UNITS.keys
            options.banner = "Usage: heddle bench report FILE... [options]\nCombines .csv (the seed's of 2008, " \
              "too) and .json files of heddle bench http, and draws them by site and by implementation.\n\n"
            options.on("-o", "--output FORMAT", FORMATS, "table (medians), csv (every round), md") do |format|
              @format = format
            end
            options.on("--out DIR", "write DIR/NAME.csv, .md and the graphs as .svg") do |directory|
              @directory = directory
            end
            options.on("--name NAME", "the files' name (#{@name})") { |name| @name = name }
            options.on("--graph COLUMNS", Array, "what to draw (#{@columns.join(",")}); there are",
              known.join(", ")) do |columns|
              wrong = columns - known
              raise UsageError, "--graph takes #{known.join(", ")}, not #{wrong.first.inspect}" if wrong.any?

              @columns = columns
            end
            options.on("-h", "--help", "this text") { @help = true }
          end
        end

        # If several files have the same implementation, its name gets that of the file.
        def combine(files)
          sheets = files.to_h { |file| [file, read(file)] }
          owners = sheets.each_with_object(Hash.new { |hash, name| hash[name] = [] }) do |(file, sheet), found|
            sheet.rows.each { |row| found[row["Impl"]] |= [file] }
          end
          labels = labels_of(files)
          rows = sheets.flat_map do |file, sheet|
            sheet.rows.map do |row|
              (owners[row["Impl"]].size > 1) ? row.merge("Impl" => "#{row["Impl"]} (#{labels[file]})") : row
            end
          end
          Bench::HTTP::Sheet.new(rows)
        end

        # The shortest ends of the paths by which the files differ.
        def labels_of(files)
          parts = files.uniq.to_h { |file| [file, file.delete_suffix(File.extname(file)).split("/")] }
          length = (1..parts.values.map(&:size).max).find do |count|
            parts.values.map { |names| names.last(count) }.uniq.size == parts.size
          end
          parts.transform_values { |names| names.last(length || names.size).join("/") }
        end

        def read(file)
          text = File.read(file)
          (File.extname(file) == ".json") ? of_record(text) : Bench::HTTP::Sheet.parse(text)
        rescue SystemCallError => error
          raise Error, "cannot read #{file}: #{error.message}"
        rescue Error => error
          raise Error, "#{file}: #{error.message}"
        end

        def of_record(text)
          record = Record.parse(text)
          unless record.header["bench"] == "http"
            raise Error, "this is a run of bench #{record.header["bench"]}; only those of bench http are combined"
          end

          Bench::HTTP::Sheet.of(record)
        end

        def charts(sheet) = @columns.map { |column| sheet.charts(column) }.reduce({}, :merge)

        def render(sheet)
          case @format
          when "csv" then sheet.to_csv
          when "md" then markdown(sheet, {})
          else Report::Text.new(colour: false).render(title, [sheet.table], [])
          end
        end

        def markdown(sheet, graphs)
          versions = sheet.rows.map { |row| [row["Impl"], row["Versions"]] }.uniq.reject { |_, text| text.to_s.empty? }
          Report::Markdown.render(title, [sheet.table],
            versions.map { |name, text| "#{name}: #{text}" }, graphs: graphs)
        end

        def title = "HTTP clients, combined"

        def write(sheet)
          FileUtils.mkdir_p(@directory)
          graphs = Report::BarChart.write(charts(sheet), @directory, @name)
          File.write(File.join(@directory, "#{@name}.csv"), sheet.to_csv)
          File.write(File.join(@directory, "#{@name}.md"), markdown(sheet, graphs))
        rescue SystemCallError => error
          raise Error, "cannot write the report: #{error.message}"
        end
      end
    end
  end
end
